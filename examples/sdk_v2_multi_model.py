"""Many models with the SageMaker Python SDK, version 2, unmodified: MultiDataModel.

pip install "sagemaker<3"
eval "$(sagehen env)"
python3 examples/sdk_v2_multi_model.py
"""

import tempfile
from pathlib import Path

import sagemaker
from common import HOUSE, require_local_server, write_house_model
from sagemaker.multidatamodel import MultiDataModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer

require_local_server()
# With a bucket and a role named here, the SDK need not ask STS who it is: it asks at an address
# that is written into it, whatever AWS_ENDPOINT_URL says.
session = sagemaker.Session(default_bucket="sdk-v2-models")
folder = Path(tempfile.mkdtemp())

models = MultiDataModel(
    name="sdk-v2-houses",
    model_data_prefix=f"s3://{session.default_bucket()}/houses/",
    image_uri=sagemaker.image_uris.retrieve("xgboost", session.boto_region_name, "1.7-1"),
    role="arn:aws:iam::000000000000:role/my-role",
    predictor_cls=Predictor,
    sagemaker_session=session,
)
predictor = models.deploy(
    initial_instance_count=1,
    instance_type="ml.m4.xlarge",
    serializer=CSVSerializer(),
    wait=False,  # left to wait by itself, deploy() sleeps 30 s before it looks
)
session.wait_for_endpoint(predictor.endpoint_name, poll=1)

# A file here, and an object that lies elsewhere: both become models of the running endpoint.
models.add_model(str(write_house_model("Houston_TX", folder)))
elsewhere = session.upload_data(str(write_house_model("Chicago_IL", folder)), key_prefix="trained")
models.add_model(elsewhere, "Chicago_IL.tar.gz")

print()
for name in sorted(models.list_models()):
    target = name.lstrip("/")
    print(target, predictor.predict(HOUSE, target_model=target).decode())

predictor.delete_endpoint()  # and its configuration
models.delete_model()
