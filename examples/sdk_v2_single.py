"""One model with the SageMaker Python SDK, version 2, unmodified: deploy, predict, delete.

pip install "sagemaker<3"
eval "$(sagehen env)"
python3 examples/sdk_v2_single.py
"""

import tempfile
from pathlib import Path

import sagemaker
from common import HOUSE, require_local_server, write_house_model
from sagemaker.deserializers import CSVDeserializer
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer

require_local_server()
# With a bucket and a role named here, the SDK need not ask STS who it is: it asks at an address
# that is written into it, whatever AWS_ENDPOINT_URL says.
session = sagemaker.Session(default_bucket="sdk-v2-models")
role = "arn:aws:iam::000000000000:role/my-role"
archive = write_house_model("Houston_TX", Path(tempfile.mkdtemp()))

model = Model(
    image_uri=sagemaker.image_uris.retrieve("xgboost", session.boto_region_name, "1.7-1"),
    model_data=session.upload_data(str(archive), key_prefix="single"),
    role=role,
    predictor_cls=Predictor,
    sagemaker_session=session,
)
# Left to wait by itself, deploy() sleeps 30 s before it looks for the first time.
predictor = model.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.large",
    serializer=CSVSerializer(),
    deserializer=CSVDeserializer(),
    wait=False,
)
session.wait_for_endpoint(predictor.endpoint_name, poll=1)

print("\nOne house: ", predictor.predict(HOUSE))
print("Two houses:", predictor.predict([HOUSE, [1978, 2973, 2, 1.5, 0.99, 1]]))

predictor.delete_endpoint()  # and its configuration
model.delete_model()
