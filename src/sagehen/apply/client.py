"""Connects to the server that templates are applied to, through boto3 and signed requests."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.httpsession import URLLib3Session
from botocore.session import Session as BotocoreSession
from botocore.utils import get_environ_proxies

from sagehen.base.config import load_settings
from sagehen.base.credentials import load_credentials
from sagehen.base.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
    SagehenError,
    Unavailable,
)
from sagehen.base.home import Home
from sagehen.base.user_environment import client_variables

__all__ = [
    "Aws",
    "Destination",
    "code_of",
    "connect",
    "connect_home",
    "sagehen_error",
    "session_with",
]

_TIMEOUT_SECONDS = 60
_REFUSALS: dict[int, type[SagehenError]] = {
    400: Invalid,
    403: Invalid,
    404: NotFound,
    409: Conflict,
}


class Aws:
    """Makes clients of one server, account and region."""

    def __init__(self, session: boto3.Session, url: str, region: str, *, direct: bool) -> None:
        """`direct` uses no proxy, which would look for the server at its own 127.0.0.1."""
        self.url = url.rstrip("/")
        self.region = region
        self._session = session
        self._direct = direct
        proxies = {} if direct else get_environ_proxies(self.url)
        self._http = URLLib3Session(timeout=_TIMEOUT_SECONDS, proxies=proxies)
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            # Never retry: the first request may have succeeded.
            config = Config(
                retries={"total_max_attempts": 1},
                read_timeout=_TIMEOUT_SECONDS,
                **({"proxies": {}} if self._direct else {}),
            )
            self._clients[service] = self._session.client(
                service, endpoint_url=self.url, region_name=self.region, config=config
            )
        return self._clients[service]

    @property
    def account_id(self) -> str:
        return str(self._identity["Account"])

    @property
    def partition(self) -> str:
        return str(self._identity["Arn"]).split(":", 2)[1]

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return dict(self.client("sts").get_caller_identity())

    def own(
        self,
        method: str,
        *path: str,
        query: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Returns the JSON answer of a path below `/_sagehen/`.

        Raises Invalid, NotFound, Conflict or Unavailable, by the answer's status.
        """
        parts = "/".join(quote(part, safe="") for part in path)
        url = f"{self.url}/_sagehen/{parts}" + (f"?{urlencode(query)}" if query else "")
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if content else {}
        request = AWSRequest(method=method, url=url, data=content, headers=headers)
        try:
            credentials = self._session.get_credentials()
            if credentials is None:
                raise Invalid('There are no keys to sign with: eval "$(sagehen env)".')
            SigV4Auth(credentials, "execute-api", self.region).add_auth(request)
            answer = self._http.send(request.prepare())
        except (HTTPClientError, BotoCoreError) as error:
            raise Unavailable(f"The server at {self.url} does not answer: {error}") from error
        return _read(self.url, answer.status_code, answer.content)


class Destination:
    """Makes ARNs and pseudo parameters for one server."""

    def __init__(self, aws: Aws) -> None:
        self.url = aws.url
        self.region = aws.region
        self.account_id = aws.account_id
        self.partition = aws.partition
        self.url_suffix = "amazonaws.com.cn" if aws.partition == "aws-cn" else "amazonaws.com"

    def arn(self, service: str, name: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account_id}:{name}"


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def sagehen_error(error: ClientError | BotoCoreError) -> SagehenError:
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        message = str(error.response.get("Error", {}).get("Message") or error)
        kind: type[SagehenError] = (
            Unavailable if status >= 500 or code_of(error) == "ThrottlingException" else Invalid
        )
        if "already exist" in message:
            kind = AlreadyExists
        return kind(f"{error.operation_name}: {message}")
    return Unavailable(str(error))


def _read(url: str, status: int, content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable(
            f"The server at {url} answered {status} without JSON. Check that it is Sagehen, and "
            "not older than this command."
        )
    if status < 300:
        return answer
    message = str(answer.get("message", f"It answered {status}."))
    raise _REFUSALS.get(status, Unavailable)(message)


def connect(home: Path | None, config: Path | None) -> Aws:
    """Connects to the server of AWS_ENDPOINT_URL; without it, or with `home`, to that home's
    server.

    Raises Unavailable if no server runs with the home, HomeError if the home has no keys.
    """
    variables = client_variables()
    if variables is not None and home is None:
        url, region = variables
        return Aws(boto3.Session(), url, region, direct=False)
    return connect_home(home, config)


def connect_home(home: Path | None, config: Path | None) -> Aws:
    settings = load_settings(config, home=home)
    server_home = Home(settings.home)
    if not server_home.address.exists():
        path = server_home.path
        raise Unavailable(
            f"No server runs with the home {path}. Start one: sagehen up --home {path}"
        )
    keys = load_credentials(server_home.credentials)
    session = session_with(keys.access_key, keys.secret_key)
    return Aws(session, server_home.address.read_text(), settings.region, direct=True)


def session_with(access_key: str, secret_key: str) -> boto3.Session:
    """Ignores AWS_PROFILE, which fails a session if the machine does not have the profile."""
    no_profile = {"profile": (None, None, None, None)}
    return boto3.Session(access_key, secret_key, botocore_session=BotocoreSession(no_profile))
