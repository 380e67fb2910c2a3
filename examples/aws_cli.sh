#!/bin/sh
# Many models behind one endpoint, with the AWS CLI.
#
#     sagehen up                      # in one terminal
#     eval "$(sagehen env)"           # in another
#     sh examples/aws_cli.sh
set -eu

: "${AWS_ENDPOINT_URL:?Start a server with 'sagehen up', then: eval \"\$(sagehen env)\"}"
export AWS_PAGER=
examples=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 "$examples/common.py" "$work"
aws s3 mb s3://cli-models
aws s3 cp "$work/Houston_TX.tar.gz" s3://cli-models/houses/
aws s3 cp "$work/Chicago_IL.tar.gz" s3://cli-models/houses/

aws sagemaker create-model --model-name cli-model \
    --execution-role-arn arn:aws:iam::000000000000:role/my-role \
    --containers Image=683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1,ModelDataUrl=s3://cli-models/houses/,Mode=MultiModel
aws sagemaker create-endpoint-config --endpoint-config-name cli-config \
    --production-variants VariantName=AllTraffic,ModelName=cli-model,InstanceType=ml.m4.xlarge,InitialInstanceCount=1
aws sagemaker create-endpoint --endpoint-name cli-endpoint --endpoint-config-name cli-config

# `aws sagemaker wait endpoint-in-service` does the same, but looks only every 30 s.
status=Creating
while [ "$status" = Creating ]; do
    status=$(aws sagemaker describe-endpoint --endpoint-name cli-endpoint \
        --query EndpointStatus --output text)
done
[ "$status" = InService ]

ask() {
    printf '1994,3188,5,1.5,1.62,3' >"$work/house.csv"
    aws sagemaker-runtime invoke-endpoint --endpoint-name cli-endpoint --content-type text/csv \
        --accept text/csv --target-model "$1" --body "fileb://$work/house.csv" "$work/price.csv"
    echo "$1 $(cat "$work/price.csv") USD"
}
ask Houston_TX.tar.gz
ask Chicago_IL.tar.gz

# One more model for the endpoint that runs
aws s3 cp "$work/NewYork_NY.tar.gz" s3://cli-models/houses/
aws s3 ls s3://cli-models/houses/
ask NewYork_NY.tar.gz

aws sagemaker delete-endpoint --endpoint-name cli-endpoint
aws sagemaker delete-endpoint-config --endpoint-config-name cli-config
aws sagemaker delete-model --model-name cli-model
aws s3 rb --force s3://cli-models
