"""The proxy of the guide to TLS passes requests on as they were signed."""

import shutil
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from support.guides import read_blocks
from support.server import Server, eventually

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "howto" / "tls.md"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="needs nginx: apt-get install nginx-light")


@pytest.fixture(scope="module")
def proxy(make_server, tmp_path_factory) -> Iterator[tuple[Server, str, Path]]:
    """A server behind nginx with the guide's configuration: it, its address, its certificate."""
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    address = f"https://localhost:{port}"
    server = make_server(public_url=address)
    (command,) = [each.text for each in read_blocks(GUIDE) if "openssl req" in each.text]
    subprocess.run(
        ["sh", "-c", command.replace("models.example.com", "localhost")], cwd=folder, check=True
    )
    site = (ROOT / "deploy" / "nginx" / "sagehen.conf").read_text()
    for old, new in {
        "127.0.0.1:9000": server.url.removeprefix("http://"),
        "listen 443": f"listen 127.0.0.1:{port}",
        "models.example.com": "localhost",
        "/etc/nginx/sagehen": f"{folder}/sagehen",
    }.items():
        assert old in site
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site)
    bodies = "".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {bodies} include {folder}/site.conf; }}"
    )
    command = [str(NGINX), "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log"]
    nginx = subprocess.Popen(command)
    try:
        context = ssl.create_default_context(cafile=folder / "sagehen.crt")
        eventually(lambda: nginx.poll() is not None or is_ready(address, context))
        assert nginx.poll() is None, (folder / "error.log").read_text()
        yield server, address, folder / "sagehen.crt"
    finally:
        nginx.send_signal(signal.SIGTERM)
        nginx.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_ready(address: str, context: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/_sagehen/health", context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def client(proxy):
    server, address, certificate = proxy
    keys = server.env

    def make(service):
        return boto3.client(
            service,
            endpoint_url=address,
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
            verify=str(certificate),
            config=Config(retries={"max_attempts": 0}),
        )

    return make


def test_objects_of_any_name_and_size_pass(client, proxy):
    s3, key, body = client("s3"), "a b/ü+%2F//x", b"x" * 20_000_000
    s3.create_bucket(Bucket="behind")
    s3.put_object(Bucket="behind", Key=key, Body=body)
    assert s3.get_object(Bucket="behind", Key=key)["Body"].read() == body
    link = s3.generate_presigned_url("get_object", Params={"Bucket": "behind", "Key": key})
    context = ssl.create_default_context(cafile=proxy[2])
    with urllib.request.urlopen(link, context=context) as answer:
        assert answer.read() == body


def test_queue_urls_lead_through_the_proxy(client, proxy):
    sqs = client("sqs")
    url = sqs.create_queue(QueueName="behind")["QueueUrl"]
    assert url.startswith(f"{proxy[1]}/")
    sqs.send_message(QueueUrl=url, MessageBody="hello")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "hello"


def test_an_endpoint_is_invoked_through_the_proxy(client, proxy, make_deployer):
    make_deployer(proxy[0]).endpoint("behind")
    answer = client("sagemaker-runtime").invoke_endpoint(
        EndpointName="behind", Body=b"[4]", ContentType="application/json"
    )
    assert answer["Body"].read() == b"[8.0]"


def test_metrics_are_not_open_behind_the_proxy(proxy):
    server, address, certificate = proxy
    assert server.get("/_sagehen/metrics")
    context = ssl.create_default_context(cafile=certificate)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{address}/_sagehen/metrics", context=context)
