"""Two servers on one state: one serves, the other says so, and takes over in the end."""

import socket

import pytest
from botocore.exceptions import ClientError

from support.deploy import Deployer
from support.postgres import running_postgres
from support.server import eventually


@pytest.fixture(scope="module", params=["postgresql", "sqlite"])
def database_url(request, tmp_path_factory):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db"
        return
    with running_postgres() as url:
        yield url


def test_a_standby_says_who_serves_and_takes_over(make_server, database_url):
    leading = make_server(database_url=database_url)
    deploy = Deployer(leading)
    assert deploy.endpoint("shared")["EndpointStatus"] == "InService"
    answer = deploy.invoke("shared")
    standing_by = make_server(database_url=database_url)
    runtime = standing_by.client("sagemaker-runtime")

    def refusal(name):
        with pytest.raises(ClientError) as refused:
            runtime.invoke_endpoint(EndpointName=name, Body=b"[1, 2]")
        error = refused.value.response
        return error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Message"]

    for name in ("shared", "unknown"):
        status, message = refusal(name)
        assert status == 503
        assert f"on the machine {socket.gethostname()} with the home {leading.home}," in message
    described = standing_by.client("sagemaker").describe_endpoint(EndpointName="shared")
    assert described["EndpointStatus"] == "InService"
    leading.stop()
    taken_over = Deployer(standing_by)

    def serves():
        try:
            return taken_over.invoke("shared") == answer
        except ClientError:
            return False

    eventually(serves)
    assert refusal("unknown")[0] == 400

    # What it knew of the endpoints when it stopped is not what there is now.
    assert taken_over.endpoint("later")["EndpointStatus"] == "InService"
    if database_url.startswith("postgresql"):
        return  # Which of them is the other's standby is the same there.
    leading.start()
    runtime = leading.client("sagemaker-runtime")
    status, message = refusal("later")
    assert status == 503
    assert f"with the home {standing_by.home}," in message
