"""How a template's client reaches the server's own paths."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import boto3
import pytest

from sagehen.apply.client import Aws, session_with
from sagehen.base.errors import Unavailable

FAR = "http://sagehen.invalid:9000"


@pytest.fixture
def proxy() -> Iterator[str]:
    """The URL of a proxy that answers itself: with the URL that it was asked for."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f'{{"asked": "{self.path}"}}'.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def by_proxy(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy)


def aws(*, direct: bool) -> Aws:
    session = boto3.Session(aws_access_key_id="key", aws_secret_access_key="secret")
    return Aws(session, FAR, "eu-west-1", direct=direct)


def test_a_server_elsewhere_is_reached_by_the_proxy_of_the_environment() -> None:
    assert aws(direct=False).own("GET", "stacks", "a") == {"asked": f"{FAR}/_sagehen/stacks/a"}


def test_one_of_this_machine_is_asked_without_it() -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        aws(direct=True).own("GET", "stacks", "a")


def test_a_profile_that_is_not_there_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "of another machine")
    client = Aws(session_with("key", "secret"), FAR, "eu-west-1", direct=True).client("sagemaker")
    assert client.meta.endpoint_url == FAR
