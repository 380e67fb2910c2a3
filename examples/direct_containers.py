"""Two frameworks on one instance: each request names the container that is to answer it.

sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/direct_containers.py
"""

import tempfile
from pathlib import Path

import boto3
from common import HOUSE, require_local_server, write_archive, write_house_model

DESCRIBE = '''
"""Puts a house into words."""


def model_fn(model_dir):
    return "{bedrooms:.0f} bedrooms and {bathrooms} bathrooms on {acres} acres, built in {year:.0f}"


def predict_fn(house, words):
    year, _, bedrooms, bathrooms, acres, _ = house
    return words.format(year=year, bedrooms=bedrooms, bathrooms=bathrooms, acres=acres)


def output_fn(words, accept):
    return words, "text/plain"
'''

require_local_server()
folder = Path(tempfile.mkdtemp())
(folder / "inference.py").write_text(DESCRIBE)
words_archive = write_archive(
    folder / "words.tar.gz", {"code/inference.py": folder / "inference.py"}
)
house_archive = write_house_model("Houston_TX", folder)

s3 = boto3.client("s3")
s3.create_bucket(Bucket="direct-models")
for archive in (words_archive, house_archive):
    s3.upload_file(str(archive), "direct-models", archive.name)

sagemaker = boto3.client("sagemaker")
sagemaker.create_model(
    ModelName="prices-and-words",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
    InferenceExecutionConfig={"Mode": "Direct"},
    Containers=[
        {
            "ContainerHostname": "price",
            "Image": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
            "ModelDataUrl": f"s3://direct-models/{house_archive.name}",
        },
        {
            "ContainerHostname": "words",
            "Image": "sagehen-python",  # or a scikit-learn, PyTorch or Hugging Face image of AWS
            "ModelDataUrl": f"s3://direct-models/{words_archive.name}",
        },
    ],
)
sagemaker.create_endpoint_config(
    EndpointConfigName="prices-and-words",
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "ModelName": "prices-and-words",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
    ],
)
sagemaker.create_endpoint(EndpointName="prices-and-words", EndpointConfigName="prices-and-words")
sagemaker.get_waiter("endpoint_in_service").wait(
    EndpointName="prices-and-words", WaiterConfig={"Delay": 1}
)

runtime = boto3.client("sagemaker-runtime")
for hostname in ("words", "price"):
    answer = runtime.invoke_endpoint(
        EndpointName="prices-and-words",
        TargetContainerHostname=hostname,
        ContentType="text/csv",
        Body=",".join(map(str, HOUSE)),
    )
    print(f"{hostname}:", answer["Body"].read().decode())

sagemaker.delete_endpoint(EndpointName="prices-and-words")
sagemaker.delete_endpoint_config(EndpointConfigName="prices-and-words")
sagemaker.delete_model(ModelName="prices-and-words")
