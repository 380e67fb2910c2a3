"""An asynchronous endpoint without instances while nothing is asked, which gets one for a request.

The calls of AWS's page, with only the names filled in:
https://docs.aws.amazon.com/sagemaker/latest/dg/async-inference-autoscale.html

    sagehen up                      # in one terminal
    eval "$(sagehen env)"           # in another
    python3 examples/seed_async_autoscaling.py

The alarm needs two minutes of data, so it takes three minutes. `--hurry` does not wait for the
alarm to find out, but sets its state.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import boto3
from common import HOUSE, require_local_server, write_house_model

ENDPOINT, VARIANT = "async-scaled", "variant1"
RESOURCE_ID = f"endpoint/{ENDPOINT}/variant/{VARIANT}"
SCALABLE = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": RESOURCE_ID,
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


def scale(client, cw_client) -> None:
    """The page's three steps; the clients are of application-autoscaling and cloudwatch."""
    # Register the variant as a scalable target that may have no instance
    client.register_scalable_target(**SCALABLE, MinCapacity=0, MaxCapacity=5)
    # Keep five requests waiting for each instance
    client.put_scaling_policy(
        PolicyName="Invocations-ScalingPolicy",
        **SCALABLE,
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 5.0,
            "CustomizedMetricSpecification": {
                "MetricName": "ApproximateBacklogSizePerInstance",
                "Namespace": "AWS/SageMaker",
                "Dimensions": [{"Name": "EndpointName", "Value": ENDPOINT}],
                "Statistic": "Average",
            },
            "ScaleInCooldown": 600,
            "ScaleOutCooldown": 300,
        },
    )
    # Leave zero for a single request, too
    response = client.put_scaling_policy(
        PolicyName="HasBacklogWithoutCapacity-ScalingPolicy",
        **SCALABLE,
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Average",
            "Cooldown": 300,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    )
    cw_client.put_metric_alarm(
        AlarmName="step_scaling_policy_alarm_name",
        MetricName="HasBacklogWithoutCapacity",
        Namespace="AWS/SageMaker",
        Statistic="Average",
        EvaluationPeriods=2,
        DatapointsToAlarm=2,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="missing",
        Dimensions=[{"Name": "EndpointName", "Value": ENDPOINT}],
        Period=60,
        AlarmActions=[response["PolicyARN"]],
    )


def main() -> None:
    require_local_server()
    s3, sm, runtime = map(boto3.client, ("s3", "sagemaker", "sagemaker-runtime"))
    autoscaling, cloudwatch = map(boto3.client, ("application-autoscaling", "cloudwatch"))
    deploy(s3, sm)
    scale(autoscaling, cloudwatch)
    # It would go to zero by itself after fifteen minutes without a request
    sm.update_endpoint_weights_and_capacities(
        EndpointName=ENDPOINT,
        DesiredWeightsAndCapacities=[{"VariantName": VARIANT, "DesiredInstanceCount": 0}],
    )
    wait_for(lambda: instances(sm) == 0)
    print("Instances:", instances(sm))

    house = ",".join(map(str, HOUSE))
    s3.put_object(Bucket="async-scaled", Key="input/house.csv", Body=house)
    answer = runtime.invoke_endpoint_async(
        EndpointName=ENDPOINT,
        InputLocation="s3://async-scaled/input/house.csv",
        ContentType="text/csv",
    )
    if "--hurry" in sys.argv:
        cloudwatch.set_alarm_state(
            AlarmName="step_scaling_policy_alarm_name",
            StateValue="ALARM",
            StateReason="A request waits.",
            StateReasonData=json.dumps({"recentDatapoints": [1.0, 1.0]}),
        )
    key = answer["OutputLocation"].partition("async-scaled/")[2]
    s3.get_waiter("object_exists").wait(
        Bucket="async-scaled", Key=key, WaiterConfig={"Delay": 1, "MaxAttempts": 600}
    )
    print("Price:", s3.get_object(Bucket="async-scaled", Key=key)["Body"].read().decode().strip())
    wait_for(lambda: newest_activity(autoscaling)["StatusCode"] == "Successful")
    activity = newest_activity(autoscaling)
    print(activity["Description"], activity["Cause"], activity["StatusMessage"], sep="\n")
    print("Instances:", instances(sm))
    sm.delete_endpoint(EndpointName=ENDPOINT)
    cloudwatch.delete_alarms(AlarmNames=["step_scaling_policy_alarm_name"])


def deploy(s3, sm) -> None:
    s3.create_bucket(Bucket="async-scaled")
    archive = write_house_model("Houston_TX", Path(tempfile.mkdtemp()))
    s3.upload_file(str(archive), "async-scaled", "model.tar.gz")
    sm.create_model(
        ModelName=ENDPOINT,
        ExecutionRoleArn="arn:aws:iam::000000000000:role/any",
        PrimaryContainer={
            "Image": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
            "ModelDataUrl": "s3://async-scaled/model.tar.gz",
        },
    )
    variant = {"VariantName": VARIANT, "ModelName": ENDPOINT, "InstanceType": "ml.m5.xlarge"}
    sm.create_endpoint_config(
        EndpointConfigName=ENDPOINT,
        ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
        AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": "s3://async-scaled/output"}},
    )
    sm.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    sm.get_waiter("endpoint_in_service").wait(EndpointName=ENDPOINT, WaiterConfig={"Delay": 1})


def instances(sm) -> int:
    (variant,) = sm.describe_endpoint(EndpointName=ENDPOINT)["ProductionVariants"]
    return variant["CurrentInstanceCount"]


def newest_activity(autoscaling) -> dict:
    return autoscaling.describe_scaling_activities(**SCALABLE)["ScalingActivities"][0]


def wait_for(condition) -> None:
    while not condition():
        time.sleep(0.5)


if __name__ == "__main__":
    main()
