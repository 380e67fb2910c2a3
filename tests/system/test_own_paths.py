"""The own paths of a real server: who gets to which of them."""

import json
import stat
from urllib.parse import urlsplit

import pytest
from starlette.routing import Route

from sagehen.app.api.own_paths import OwnPaths
from sagehen.base.address import reachable_urls
from sagehen.frame.own_paths.access import Access, access_of
from sagehen.services.inference_service.own_paths import service_routes
from sagehen.services.sagemaker.async_inference.own_paths import AsyncPaths
from sagehen.services.sagemaker.training.own_paths import JobPaths
from sagehen.services.stacks.own_paths import stack_routes
from support.cli import run_command
from support.plain_http import ask
from support.server import eventually

EVIL = {"Host": "evil.com:9000"}


def all_routes() -> list[Route]:
    """Every route that control serves below `/_sagehen/`."""
    more = [
        *AsyncPaths(None).routes,  # type: ignore[arg-type]
        *JobPaths(None).routes,  # type: ignore[arg-type]
        *stack_routes(None, None),  # type: ignore[arg-type]
        *service_routes(None),  # type: ignore[arg-type]
    ]
    return OwnPaths(None, None, None, other_routes=more).app.routes  # type: ignore[arg-type,return-value]


def requests():
    """Method and path of all there is."""
    for route in all_routes():
        path = route.path.replace("{inference_id:path}", "i")
        for name in ("endpoint", "id", "name", "stage", "verb"):
            path = path.replace(f"{{{name}}}", "x")
        assert "{" not in path
        for method in sorted(route.methods or ()):
            yield method, path


NEEDING_KEYS = [one for one in requests() if access_of(one[1]) is Access.KEYS]


def test_nearly_all_of_them_need_keys():
    assert len(NEEDING_KEYS) > 20
    assert {path for _, path in requests()} - {path for _, path in NEEDING_KEYS} == {
        "/_sagehen/health",
        "/_sagehen/metrics",
        "/_sagehen/internal/gateway",
    }


@pytest.mark.parametrize(("method", "path"), NEEDING_KEYS)
def test_without_keys_it_is_refused(server, method, path):
    for headers in ({}, {"Authorization": "Bearer guessed"}, {"X-Api-Key": "guessed"}):
        refused = ask(server.url + path, headers=headers, method=method)
        assert refused.status == 403
        assert method == "HEAD" or refused.json["message"]


@pytest.mark.parametrize(("method", "path"), NEEDING_KEYS)
def test_with_the_token_it_is_not(server, method, path):
    answer = ask(server.url + path, headers=server.bearer, method=method)
    assert answer.status in (200, 400, 404, 409)


def test_the_token_is_readable_by_its_owner_only(server):
    assert stat.S_IMODE((server.home / "token").stat().st_mode) == 0o600


def test_health_is_told_to_anyone_but_reasons_only_to_who_asks_this_server(server):
    url = f"{server.url}/_sagehen/health"
    assert ask(url).json == {"ready": True, "state": "ok", "agent": "ok"}
    assert ask(url, headers=EVIL).json == {"ready": True}


def test_metrics_are_told_on_this_machine(server):
    url = f"{server.url}/_sagehen/metrics"
    assert b"sagehen_limit_hits_total" in ask(url).body
    assert b'limit="control_bodies"' in ask(url).body
    assert ask(url, headers={**EVIL, **server.bearer}).status == 200
    assert ask(url, headers=EVIL).status == 403


def test_a_page_that_had_its_name_lead_here_reads_nothing(server):
    link = f"{server.url}/?Action=ConfirmSubscription&TopicArn=t&Token=x"
    refused = ask(link, headers=EVIL)
    assert (refused.status, b"allowed_hosts" in refused.body) == (403, True)
    assert b"allowed_hosts" not in ask(link).body


def test_the_commands_know_the_token(server):
    assert run_command("status", "--home", server.home).status == 0
    unknown = run_command("async", "status", "no-such", "--home", server.home)
    assert "no-such" in unknown.stderr
    assert "token" not in unknown.stderr


@pytest.fixture(scope="module")
def opened(make_server):
    """A server that other machines reach."""
    return make_server(host="0.0.0.0", allowed_hosts="box", public_url="http://far.example")


def test_one_whom_others_reach_says_so(opened):
    log = opened.home.parent / "up.log"
    # The server answers before the command has printed all.
    eventually(lambda: "links in notifications" in " ".join(log.read_text().split()))
    said = " ".join(log.read_text().split())
    others = reachable_urls("0.0.0.0", opened.port)
    assert f"Other machines reach this server at {', '.join(others)}." in said
    assert "WARNING: It speaks plain HTTP" in said
    assert "/_sagehen/health and the links in notifications" in said
    told = run_command("env", "--home", opened.home)
    assert f"On other machines: AWS_ENDPOINT_URL={others[0]}" in told.stderr
    assert f"AWS_ENDPOINT_URL={opened.url}\n" in told.stdout


def test_one_whom_only_this_machine_reaches_says_nothing(server):
    assert "Other machines" not in (server.home.parent / "up.log").read_text()
    assert "other machines" not in run_command("env", "--home", server.home).stderr


def test_one_whom_others_reach_keeps_its_metrics(opened):
    port = urlsplit(opened.url).port
    url = f"http://127.0.0.1:{port}/_sagehen/metrics"
    assert ask(url).status == 403
    assert ask(url, headers=opened.bearer).status == 200
    assert json.loads(opened.get("/_sagehen/status"))["endpoints"] == []
    link = f"http://127.0.0.1:{port}/?Action=ConfirmSubscription&TopicArn=t&Token=x"
    for host in ("box", "far.example", f"127.0.0.1:{port}"):
        assert b"allowed_hosts" not in ask(link, headers={"Host": host}).body
