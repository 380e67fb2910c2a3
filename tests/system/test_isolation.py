"""What one endpoint's code does hurts no other endpoint."""

from sagehen.base.home import Home
from support.deploy import IMAGE
from support.mounts import may_mount
from support.namespaces import may_unshare_network

SPOILING = """
import os
def model_fn(folder):
    return os.path.join(folder, "code", "notes.txt")

def transform_fn(path, data, content_type, accept):
    os.chmod(os.path.dirname(path), 0o700)
    with open(path, "a+") as notes:
        notes.write(data if isinstance(data, str) else data.decode())
        notes.seek(0)
        return notes.read(), "text/plain"
"""


LOOKING = """
import os
def model_fn(folder):
    return None

def transform_fn(model, data, content_type, accept):
    home = data if isinstance(data, str) else data.decode()
    return ",".join(sorted(os.listdir(home))), "text/plain"
"""


@may_mount
@may_unshare_network
def test_a_model_with_network_isolation_sees_no_keys_of_the_home(server, deploy):
    home = server.home
    deploy.sagemaker.create_model(
        ModelName="isolated",
        PrimaryContainer={
            "Image": IMAGE,
            "ModelDataUrl": deploy.upload("isolated/model.tar.gz", LOOKING),
        },
        EnableNetworkIsolation=True,
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "isolated",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    deploy.sagemaker.create_endpoint_config(
        EndpointConfigName="isolated", ProductionVariants=[variant]
    )
    deploy.sagemaker.create_endpoint(EndpointName="isolated", EndpointConfigName="isolated")
    assert deploy.settled("isolated")["EndpointStatus"] == "InService"
    seen = set(deploy.invoke("isolated", str(home)).split(","))
    hidden = {path.name for path in Home(home).hidden}
    assert {"run", "instances"} <= seen
    assert not seen & hidden
    assert hidden & {path.name for path in home.iterdir()}


def test_a_script_that_writes_to_its_model_folder_spoils_only_its_own(deploy):
    deploy.endpoint("spoiling", SPOILING)
    for name in ("beside", "after"):
        if name == "after":
            assert deploy.invoke("spoiling", "spoilt") == "spoilt"
        deploy.sagemaker.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[
                {
                    "VariantName": "AllTraffic",
                    "ModelName": "spoiling",
                    "InstanceType": "ml.m5.large",
                    "InitialInstanceCount": 1,
                }
            ],
        )
        deploy.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        assert deploy.settled(name)["EndpointStatus"] == "InService"
    assert deploy.invoke("beside", "1") == "1"
    assert deploy.invoke("after", "2") == "2"
