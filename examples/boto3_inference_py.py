"""Any Python behind an endpoint: the archive brings its own code/inference.py.

sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/boto3_inference_py.py
"""

import json
import tempfile
from pathlib import Path

import boto3
from common import require_local_server, write_archive

INFERENCE = '''
"""Names the language of a text by its most frequent small words."""

import json
from pathlib import Path


def model_fn(model_dir):
    words = json.loads(Path(model_dir, "words.json").read_text())
    return {language: set(known) for language, known in words.items()}


def input_fn(body, content_type):
    if content_type != "application/json":
        raise ValueError(f"send application/json, not {content_type}")
    return [text.lower().split() for text in json.loads(body)["texts"]]


def predict_fn(texts, model):
    def language_of(words):
        return max(model, key=lambda language: sum(word in model[language] for word in words))

    return [language_of(words) for words in texts]


def output_fn(languages, accept):
    return json.dumps({"languages": languages}), "application/json"
'''
WORDS = {
    "de": ["der", "die", "und", "ist", "nicht", "ein"],
    "en": ["the", "and", "is", "not", "a", "of"],
    "fr": ["le", "la", "et", "est", "pas", "un"],
}

require_local_server()
folder = Path(tempfile.mkdtemp())
(folder / "inference.py").write_text(INFERENCE)
(folder / "words.json").write_text(json.dumps(WORDS))
archive = write_archive(
    folder / "model.tar.gz",
    {"code/inference.py": folder / "inference.py", "words.json": folder / "words.json"},
)

s3 = boto3.client("s3")
s3.create_bucket(Bucket="language-models")
s3.upload_file(str(archive), "language-models", "model.tar.gz")

sagemaker = boto3.client("sagemaker")
sagemaker.create_model(
    ModelName="language",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
    PrimaryContainer={
        "Image": "sagehen-python",  # or a PyTorch, TensorFlow or Hugging Face image of AWS
        "ModelDataUrl": "s3://language-models/model.tar.gz",
    },
)
sagemaker.create_endpoint_config(
    EndpointConfigName="language",
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "ModelName": "language",
            "InstanceType": "ml.t2.medium",
            "InitialInstanceCount": 1,
        }
    ],
)
sagemaker.create_endpoint(EndpointName="language", EndpointConfigName="language")
sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="language", WaiterConfig={"Delay": 1})

texts = ["The house is not a boat", "Das Haus ist nicht der Rede wert", "La maison est un rêve"]
response = boto3.client("sagemaker-runtime").invoke_endpoint(
    EndpointName="language",
    ContentType="application/json",
    Accept="application/json",
    Body=json.dumps({"texts": texts}),
)
for text, language in zip(texts, json.load(response["Body"])["languages"], strict=True):
    print(language, text)

sagemaker.delete_endpoint(EndpointName="language")
sagemaker.delete_endpoint_config(EndpointConfigName="language")
sagemaker.delete_model(ModelName="language")
