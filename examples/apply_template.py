"""A CloudFormation template, applied, changed and taken away: languages.yaml.

sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/apply_template.py
"""

import json
import subprocess
import tempfile
from pathlib import Path

import boto3
from common import require_local_server, write_archive

INFERENCE = '''
"""Names the language of a text by a small word of it, of those in the variable WORDS."""

import json
import os


def model_fn(model_dir):
    return os.environ["WORDS"].split(",")


def input_fn(body, content_type):
    return json.loads(body).lower().split()


def predict_fn(words, known):
    return max(known, key=words.count)


def output_fn(word, accept):
    return json.dumps(f"as in {word!r}"), "application/json"
'''

require_local_server()
template = Path(__file__).with_name("languages.yaml")
s3, sqs = boto3.client("s3"), boto3.client("sqs")
runtime = boto3.client("sagemaker-runtime")


def sagehen(verb: str, *options: str) -> None:
    subprocess.run(["sagehen", verb, str(template), "--yes", *options], check=True)


# What the template takes as given: the model's archive
folder = Path(tempfile.mkdtemp())
(folder / "inference.py").write_text(INFERENCE)
files = {"code/inference.py": folder / "inference.py"}
archive = write_archive(folder / "model.tar.gz", files)
s3.create_bucket(Bucket="language-archives")
s3.upload_file(str(archive), "language-archives", "model.tar.gz")
data = "ModelData=s3://language-archives/model.tar.gz"

# Everything else is in the template
sagehen("apply", "--parameter", data)

queue = sqs.get_queue_url(
    QueueName=next(
        url.rpartition("/")[2]
        for url in sqs.list_queues(QueueNamePrefix="languages-Inbox")["QueueUrls"]
    )
)["QueueUrl"]


def ask(text: str) -> str:
    """Returns the answer, once its notice has arrived."""
    s3.put_object(Bucket="language-archives", Key="text.json", Body=json.dumps(text))
    asked = runtime.invoke_endpoint_async(
        EndpointName="languages",
        InputLocation="s3://language-archives/text.json",
        ContentType="application/json",
    )
    while True:
        for message in sqs.receive_message(QueueUrl=queue).get("Messages", []):
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            if json.loads(message["Body"]).get("inferenceId") == asked["InferenceId"]:
                bucket, _, key = asked["OutputLocation"].removeprefix("s3://").partition("/")
                return json.load(s3.get_object(Bucket=bucket, Key=key)["Body"])


text = "Die Henne und der Hahn, der Hof und der Hund"
print(text, "—", ask(text))

# Another model, without an instant in which the endpoint would not answer
sagehen("apply", "--parameter", data, "--parameter", "Words=the,und,et")
print(text, "—", ask(text))

sagehen("delete")
