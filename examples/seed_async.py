"""An asynchronous endpoint: the code of AWS's page, with only the names filled in, and its notices.

https://docs.aws.amazon.com/sagemaker/latest/dg/async-inference-create-endpoint.html

    pip install "sagemaker<3"
    sagehen up                      # in one terminal
    eval "$(sagehen env)"           # in another
    python3 examples/seed_async.py

The page asks for a model, a bucket and topics that are there: they are made first. In its call of
create_endpoint_config a comma is missing, which is put in here.
"""

import json
import tempfile
from pathlib import Path
from time import gmtime, strftime

import boto3
from common import HOUSE, require_local_server, write_house_model

require_local_server()

# A bucket with a model, topics, and a queue that hears from both
s3_bucket, bucket_prefix = "async-models", "saved_models"
s3, sns, sqs = map(boto3.client, ("s3", "sns", "sqs"))
s3.create_bucket(Bucket=s3_bucket)
archive = write_house_model("Houston_TX", Path(tempfile.mkdtemp()))
s3.upload_file(str(archive), s3_bucket, f"{bucket_prefix}/demo-xgboost-model.tar.gz")
success_topic = sns.create_topic(Name="async-success")["TopicArn"]
error_topic = sns.create_topic(Name="async-error")["TopicArn"]
queue_url = sqs.create_queue(QueueName="async-notices")["QueueUrl"]
queue = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
for topic in (success_topic, error_topic):
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue["Attributes"]["QueueArn"])


def next_notice():
    """What SageMaker says in the next message, which is taken from the queue."""
    (message,) = sqs.receive_message(QueueUrl=queue_url, WaitTimeSeconds=20)["Messages"]
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    return json.loads(json.loads(message["Body"])["Message"])


# The page's code, from here
aws_region = boto3.Session().region_name
# Create a low-level SageMaker service client.
sagemaker_client = boto3.client("sagemaker", region_name=aws_region)
# Role to give SageMaker permission to access AWS services.
sagemaker_role = "arn:aws:iam::000000000000:role/my-role"

# Create a variable w/ the model S3 URI
model_s3_key = f"{bucket_prefix}/demo-xgboost-model.tar.gz"
model_url = f"s3://{s3_bucket}/{model_s3_key}"

from sagemaker import image_uris  # noqa: E402

# Specify an AWS container image.
container = image_uris.retrieve(region=aws_region, framework="xgboost", version="0.90-1")

model_name = "async-houses"
# Create model
create_model_response = sagemaker_client.create_model(
    ModelName=model_name,
    ExecutionRoleArn=sagemaker_role,
    PrimaryContainer={
        "Image": container,
        "ModelDataUrl": model_url,
    },
)

# The same with the limits of the model server raised
model_name = "async-large-houses"
# Create model
create_model_response = sagemaker_client.create_model(
    ModelName=model_name,
    ExecutionRoleArn=sagemaker_role,
    PrimaryContainer={
        "Image": container,
        "ModelDataUrl": model_url,
        "Environment": {
            "TS_MAX_REQUEST_SIZE": "100000000",
            "TS_MAX_RESPONSE_SIZE": "100000000",
            "TS_DEFAULT_RESPONSE_TIMEOUT": "1000",
        },
    },
)

# Create an endpoint config name. Here we create one based on the date
# so it we can search endpoints based on creation time.
endpoint_config_name = f"XGBoostEndpointConfig-{strftime('%Y-%m-%d-%H-%M-%S', gmtime())}"
create_endpoint_config_response = sagemaker_client.create_endpoint_config(
    # You will specify this name in a CreateEndpoint request.
    EndpointConfigName=endpoint_config_name,
    # List of ProductionVariant objects, one for each model that you want to host at this endpoint.
    ProductionVariants=[
        {
            "VariantName": "variant1",  # The name of the production variant.
            "ModelName": model_name,
            "InstanceType": "ml.m5.xlarge",  # Specify the compute instance type.
            "InitialInstanceCount": 1,  # Number of instances to launch initially.
        }
    ],
    AsyncInferenceConfig={
        "OutputConfig": {
            # Location to upload response outputs when no location is provided in the request.
            "S3OutputPath": f"s3://{s3_bucket}/{bucket_prefix}/output",
            # (Optional) specify Amazon SNS topics
            "NotificationConfig": {
                "SuccessTopic": success_topic,
                "ErrorTopic": error_topic,
            },
        },
        "ClientConfig": {
            # (Optional) Specify the max number of inflight invocations per instance
            # If no value is provided, Amazon SageMaker will choose an optimal value for you
            "MaxConcurrentInvocationsPerInstance": 4
        },
    },
)
print(f"Created EndpointConfig: {create_endpoint_config_response['EndpointConfigArn']}")

# The name of the endpoint. The name must be unique within an AWS Region in your AWS account.
endpoint_name = "async-houses"
create_endpoint_response = sagemaker_client.create_endpoint(
    EndpointName=endpoint_name, EndpointConfigName=endpoint_config_name
)
# The page's code, up to here

# Each topic is told of the endpoint
for _ in (success_topic, error_topic):
    print(next_notice()["eventName"])
sagemaker_client.get_waiter("endpoint_in_service").wait(
    EndpointName=endpoint_name, WaiterConfig={"Delay": 1}
)

# Upload what is to be predicted, ask for it, and wait for the answer
runtime = boto3.client("sagemaker-runtime")


def invoke(key, rows):
    s3.put_object(Bucket=s3_bucket, Key=key, Body=rows)
    return runtime.invoke_endpoint_async(
        EndpointName=endpoint_name,
        InputLocation=f"s3://{s3_bucket}/{key}",
        ContentType="text/csv",
        Accept="text/csv",
    )


accepted = invoke("input/houses.csv", ",".join(map(str, HOUSE)))
output = accepted["OutputLocation"].removeprefix(f"s3://{s3_bucket}/")
s3.get_waiter("object_exists").wait(Bucket=s3_bucket, Key=output, WaiterConfig={"Delay": 1})
print("Price:", s3.get_object(Bucket=s3_bucket, Key=output)["Body"].read().decode())

notice = next_notice()
assert notice["inferenceId"] == accepted["InferenceId"]
print(f"{notice['eventName']}: {notice['invocationStatus']}")

# What cannot be answered is told to the other topic
refused = invoke("input/words.csv", "not,numbers")
notice = next_notice()
assert notice["inferenceId"] == refused["InferenceId"]
print(f"{notice['eventName']}: {notice['invocationStatus']}, {notice['failureReason']}")

# Clean up
sagemaker_client.delete_endpoint(EndpointName=endpoint_name)
sagemaker_client.delete_endpoint_config(EndpointConfigName=endpoint_config_name)
for name in ("async-houses", "async-large-houses"):
    sagemaker_client.delete_model(ModelName=name)
for topic in (success_topic, error_topic):
    sns.delete_topic(TopicArn=topic)
sqs.delete_queue(QueueUrl=queue_url)
sagemaker_client.get_waiter("endpoint_deleted").wait(
    EndpointName=endpoint_name, WaiterConfig={"Delay": 1}
)
