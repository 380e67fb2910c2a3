"""Own paths from functions."""

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sagehen.base.errors import AlreadyExists, Conflict, Invalid, NotFound, StateError, Unavailable
from sagehen.frame.own_paths.routes import OwnPathRequest, number_in, own_route, refusal

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def echo(request: OwnPathRequest) -> object:
    return [request.method, dict(request.path), dict(request.query), request.body.decode()]


async def later(_: OwnPathRequest) -> object:
    raise NotFound("There is no such thing.")


@pytest.fixture
def client() -> TestClient:
    route = own_route("/things/{name}", {"GET": echo, "PUT": echo, "DELETE": later}, 5)
    return TestClient(Starlette(routes=[route]))


def test_a_function_gets_the_request(client: TestClient) -> None:
    answer = client.put("/things/a%20b?x=1", content=b"12345")
    assert answer.json() == ["PUT", {"name": "a b"}, {"x": "1"}, "12345"]


def test_a_coroutine_may_raise_our_errors(client: TestClient) -> None:
    answer = client.delete("/things/a")
    assert (answer.status_code, answer.json()) == (404, {"message": "There is no such thing."})


def test_bodies_and_queries_have_bounds(client: TestClient) -> None:
    assert client.put("/things/a", content=b"123456").status_code == 400
    assert client.get("/things/a?x=1&x=2").status_code == 400
    assert client.post("/things/a").status_code == 405


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("x"), 404),
        (AlreadyExists("x"), 409),
        (Conflict("x"), 409),
        (Invalid("x"), 400),
        (Unavailable("x"), 503),
        (StateError("x"), 500),
    ],
)
def test_errors_have_statuses(error, status: int) -> None:
    assert refusal(error).status_code == status


def test_numbers_in_queries() -> None:
    assert number_in({"n": "7"}, "n", None, 1, 10) == 7
    assert number_in({}, "n", 5, 1, 10) == 5
    for text in ("0", "11", "-1", "1.0", "", "٣", "9" * 30):
        with pytest.raises(Invalid, match="n must be a number from 1 to 10"):
            number_in({"n": text}, "n", 5, 1, 10)
