"""Two servers on one state: one serves, and the other takes over in the end. Until then the other
sends invocations to the first, where both have the same keys, or says who serves."""

import json
import socket

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from support.deploy import Deployer
from support.plain_http import ask
from support.postgres import running_postgres
from support.server import eventually


@pytest.fixture(scope="module", params=["postgresql", "sqlite"])
def database_url(request, tmp_path_factory):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db"
        return
    with running_postgres() as url:
        yield url


def check_forwarding(standing_by, answer):
    """Whatever a gateway answers: a body, chunks, an error."""
    deployed = Deployer(standing_by)
    eventually(lambda: outcome(deployed.invoke, "shared") == answer)
    large = f"[{', '.join(['1'] * 200_000)}]"
    assert deployed.invoke("shared", large) == large.replace("1", "2.0")
    runtime = standing_by.client("sagemaker-runtime")
    with pytest.raises(ClientError) as refused:
        runtime.invoke_endpoint(EndpointName="unknown", Body=b"[1, 2]")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    # A signature that is wrong is wrong for both.
    url = f"{standing_by.url}/endpoints/shared/invocations"
    assert ask(url, b"[1, 2]", {"Content-Type": "application/json"}).status == 403
    # Two that stand by must not send a request to and fro.
    credentials = json.loads((standing_by.home / "credentials.json").read_text())
    signed = AWSRequest("POST", url, {"x-sagehen-forwarded": "1"}, b"[1, 2]")
    keys = Credentials(credentials["access_key"], credentials["secret_key"])
    SigV4Auth(keys, "sagemaker", "us-east-1").add_auth(signed)
    assert ask(url, b"[1, 2]", dict(signed.headers)).status == 503


def outcome(call, *args):
    try:
        return call(*args)
    except ClientError as error:
        return error


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

    if database_url.startswith("postgresql"):
        check_forwarding(standing_by, answer)
    else:
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
