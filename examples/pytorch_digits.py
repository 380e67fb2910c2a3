"""A PyTorch network, trained here on handwritten digits, behind an endpoint as TorchScript.

pip install ".[torch]" scikit-learn
sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/pytorch_digits.py
"""

import io
import json
import tempfile
from pathlib import Path

import boto3
import numpy as np
import torch
from common import require_local_server, write_archive
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

require_local_server()
torch.manual_seed(7)
pixels, digits = load_digits(return_X_y=True)
train, held_out, train_digits, held_out_digits = train_test_split(
    pixels.astype("float32") / 16, digits, random_state=7
)

network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
for _ in range(200):
    scores = network(torch.from_numpy(train))
    torch.nn.functional.cross_entropy(scores, torch.from_numpy(train_digits)).backward()
    with torch.no_grad():
        for weights in network.parameters():
            weights -= weights.grad
            weights.grad = None

# Without code/inference.py, the container loads the one TorchScript file that the archive has.
folder = Path(tempfile.mkdtemp())
torch.jit.script(network).save(folder / "model.pt")
archive = write_archive(folder / "model.tar.gz", {"model.pt": folder / "model.pt"})

s3 = boto3.client("s3")
s3.create_bucket(Bucket="digit-models")
s3.upload_file(str(archive), "digit-models", "model.tar.gz")

image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
sagemaker = boto3.client("sagemaker")
sagemaker.create_model(
    ModelName="digits",
    ExecutionRoleArn="arn:aws:iam::000000000000:role/my-role",
    PrimaryContainer={"Image": image, "ModelDataUrl": "s3://digit-models/model.tar.gz"},
)
sagemaker.create_endpoint_config(
    EndpointConfigName="digits",
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "ModelName": "digits",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
        }
    ],
)
sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits")
sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="digits", WaiterConfig={"Delay": 1})

# NumPy's own form is the shortest way for many numbers; JSON and CSV are understood as well.
body = io.BytesIO()
np.save(body, held_out)
response = boto3.client("sagemaker-runtime").invoke_endpoint(
    EndpointName="digits", ContentType="application/x-npy", Body=body.getvalue()
)
scores = np.array(json.load(response["Body"]))
with torch.inference_mode():
    expected = network(torch.from_numpy(held_out)).numpy()
assert np.allclose(scores, expected, atol=1e-4), "the endpoint and the network here disagree"
right = int((scores.argmax(axis=1) == held_out_digits).sum())
print(f"{right} of {len(held_out)} held-out digits read rightly")

sagemaker.delete_endpoint(EndpointName="digits")
sagemaker.delete_endpoint_config(EndpointConfigName="digits")
sagemaker.delete_model(ModelName="digits")
