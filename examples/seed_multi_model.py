"""Many models behind one endpoint: the code of the AWS article, with only the names filled in.

https://aws.amazon.com/blogs/machine-learning/save-on-inference-costs-by-using-amazon-sagemaker-multi-model-endpoints/

    sagehen up                      # in one terminal
    eval "$(sagehen env)"           # in another
    python3 examples/seed_multi_model.py
"""

import json
import tempfile
from pathlib import Path

import boto3
from common import HOUSE, require_local_server, write_house_model

require_local_server()
s3 = boto3.client("s3")
sm_client = boto3.client("sagemaker")
runtime_sm_client = boto3.client("sagemaker-runtime")

XGB_CONTAINER = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
role = "arn:aws:iam::000000000000:role/my-role"
folder = Path(tempfile.mkdtemp())
body = ",".join(map(str, HOUSE))

# Trained models, below one prefix
s3.create_bucket(Bucket="my-bucket")
for city in ("Chicago_IL", "Houston_TX", "LosAngeles_CA"):
    archive = write_house_model(city, folder)
    s3.upload_file(str(archive), "my-bucket", f"path/to/artifacts/{archive.name}")

# The model, the endpoint configuration, the endpoint
container = {
    "Image": XGB_CONTAINER,
    "ModelDataUrl": "s3://my-bucket/path/to/artifacts/",
    "Mode": "MultiModel",
}
response = sm_client.create_model(
    ModelName="my-multi-model-name", ExecutionRoleArn=role, Containers=[container]
)
response = sm_client.create_endpoint_config(
    EndpointConfigName="my-epc",
    ProductionVariants=[
        {
            "InstanceType": "ml.m4.xlarge",
            "InitialInstanceCount": 2,
            "InitialVariantWeight": 1,
            "ModelName": "my-multi-model-name",
            "VariantName": "AllTraffic",
        }
    ],
)
response = sm_client.create_endpoint(EndpointName="my-endpoint", EndpointConfigName="my-epc")
sm_client.get_waiter("endpoint_in_service").wait(
    EndpointName="my-endpoint", WaiterConfig={"Delay": 1}
)

# Invoke
for target in ("Houston_TX.tar.gz", "Chicago_IL.tar.gz"):
    response = runtime_sm_client.invoke_endpoint(
        EndpointName="my-endpoint", ContentType="text/csv", TargetModel=target, Body=body
    )
    print(target, json.load(response["Body"])[0], "USD")

# A new model for the endpoint that runs: copy it to the prefix, and invoke it
archive = write_house_model("NewYork_NY", folder)
s3.upload_file(str(archive), "my-bucket", f"path/to/artifacts/{archive.name}")
response = runtime_sm_client.invoke_endpoint(
    EndpointName="my-endpoint", ContentType="text/csv", TargetModel="NewYork_NY.tar.gz", Body=body
)
print("NewYork_NY.tar.gz", json.load(response["Body"])[0], "USD")

# Clean up
sm_client.delete_endpoint(EndpointName="my-endpoint")
sm_client.delete_endpoint_config(EndpointConfigName="my-epc")
sm_client.delete_model(ModelName="my-multi-model-name")
sm_client.get_waiter("endpoint_deleted").wait(EndpointName="my-endpoint", WaiterConfig={"Delay": 1})
