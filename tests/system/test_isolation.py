"""What one endpoint's code does hurts no other endpoint."""

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
