"""A multi-model endpoint that scales with the invocations of all its models together.

"Amazon SageMaker multi-model endpoints fully support auto scaling … The invocation rate used to
trigger an autoscale event is based on the aggregate set of predictions across the full set of
models served by the endpoint":
https://aws.amazon.com/blogs/machine-learning/save-on-inference-costs-by-using-amazon-sagemaker-multi-model-endpoints/

    sagehen up                      # in one terminal
    eval "$(sagehen env)"           # in another
    python3 examples/seed_multi_model_autoscaling.py

The alarm needs three minutes of data, so it takes four minutes. `--hurry` does not wait for the
alarm to find out, but sets its state.
"""

import json
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

import boto3
from common import HOUSE, require_local_server, write_house_model

ENDPOINT, VARIANT, BUCKET = "models-scaled", "AllTraffic", "models-scaled"
CITIES = ("Chicago_IL", "Houston_TX", "LosAngeles_CA")
SCALABLE = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": f"endpoint/{ENDPOINT}/variant/{VARIANT}",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
CALLS_PER_MINUTE = 20.0
"""of each instance, whichever models they are for"""


def scale(client) -> dict:
    """`client`: of application-autoscaling. Returns the policy's answer."""
    client.register_scalable_target(**SCALABLE, MinCapacity=1, MaxCapacity=3)
    return client.put_scaling_policy(
        PolicyName="invocations",
        **SCALABLE,
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": CALLS_PER_MINUTE,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
            },
        },
    )


def main() -> None:
    require_local_server()
    s3, sm, runtime = map(boto3.client, ("s3", "sagemaker", "sagemaker-runtime"))
    autoscaling, cloudwatch = map(boto3.client, ("application-autoscaling", "cloudwatch"))
    deploy(s3, sm)
    high = next(
        alarm["AlarmName"]
        for alarm in scale(autoscaling)["Alarms"]
        if "AlarmHigh" in alarm["AlarmName"]
    )
    print("Instances:", instances(sm))
    for number, city in enumerate(cycle(CITIES)):
        price = ask(runtime, city)
        if number < len(CITIES):
            print(f"{city}: {price}")
        elif "--hurry" in sys.argv and number == len(CITIES):
            cloudwatch.set_alarm_state(
                AlarmName=high,
                StateValue="ALARM",
                StateReason="As if there had been 50 invocations a minute.",
                StateReasonData=json.dumps({"recentDatapoints": [50.0, 50.0, 50.0]}),
            )
        if instances(sm) > 1:
            break
        time.sleep(0.1)
    while not is_settled(sm, autoscaling):
        time.sleep(0.5)
    activity = newest_activity(autoscaling)
    print(activity["Description"], activity["StatusMessage"], sep="\n")
    print("Instances:", instances(sm))
    sm.delete_endpoint(EndpointName=ENDPOINT)


def deploy(s3, sm) -> None:
    s3.create_bucket(Bucket=BUCKET)
    folder = Path(tempfile.mkdtemp())
    for city in CITIES:
        archive = write_house_model(city, folder)
        s3.upload_file(str(archive), BUCKET, f"models/{archive.name}")
    sm.create_model(
        ModelName=ENDPOINT,
        ExecutionRoleArn="arn:aws:iam::000000000000:role/any",
        Containers=[
            {
                "Image": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
                "ModelDataUrl": f"s3://{BUCKET}/models/",
                "Mode": "MultiModel",
            }
        ],
    )
    variant = {"VariantName": VARIANT, "ModelName": ENDPOINT, "InstanceType": "ml.m5.xlarge"}
    sm.create_endpoint_config(
        EndpointConfigName=ENDPOINT,
        ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
    )
    sm.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    sm.get_waiter("endpoint_in_service").wait(EndpointName=ENDPOINT, WaiterConfig={"Delay": 1})


def ask(runtime, city: str) -> str:
    answer = runtime.invoke_endpoint(
        EndpointName=ENDPOINT,
        TargetModel=f"{city}.tar.gz",
        ContentType="text/csv",
        Body=",".join(map(str, HOUSE)),
    )
    return answer["Body"].read().decode().strip()


def instances(sm) -> int:
    (variant,) = sm.describe_endpoint(EndpointName=ENDPOINT)["ProductionVariants"]
    return variant["CurrentInstanceCount"]


def is_settled(sm, autoscaling) -> bool:
    status = sm.describe_endpoint(EndpointName=ENDPOINT)["EndpointStatus"]
    return status == "InService" and newest_activity(autoscaling)["StatusCode"] == "Successful"


def newest_activity(autoscaling) -> dict:
    return autoscaling.describe_scaling_activities(**SCALABLE)["ScalingActivities"][0]


if __name__ == "__main__":
    main()
