"""A model behind Flask. This one answers with its name, the container's id and the body."""

import uuid
from pathlib import Path

import flask

MODEL = Path("/opt/ml/model/name.txt").read_text().strip()
ID_FILE = Path("/tmp/container-id")

app = flask.Flask(__name__)


def container_id() -> str:
    """All workers of a container share its /tmp."""
    try:
        with ID_FILE.open("x") as file:
            file.write(uuid.uuid4().hex)
    except FileExistsError:
        pass
    return ID_FILE.read_text()


CONTAINER = container_id()


@app.get("/ping")
def ping() -> flask.Response:
    return flask.Response("\n", mimetype="application/json")


@app.post("/invocations")
def invocations() -> flask.Response:
    body = flask.request.data.decode()
    return flask.Response(f"{MODEL} {CONTAINER} {body}", mimetype="text/plain")
