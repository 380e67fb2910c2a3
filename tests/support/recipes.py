"""Containers of users, as they run on AWS: how each is started, and how its answers are read.

Every recipe's container listens on port 8080, and answers with the name of its model, an id of its
own and what it was sent, so that an answer of another endpoint or instance is recognized.
"""

import importlib.util
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["RECIPES", "Answer", "Recipe"]

FOLDER = Path(__file__).parents[2] / "examples" / "containers"
MLFLOW_PYTHON = "RECIPES_MLFLOW_PYTHON"
"""names an interpreter with mlflow, which is too large for the tests' own"""
PYTRITON_PYTHON = "RECIPES_PYTRITON_PYTHON"
"""names an interpreter with a libpython of its version, as Debian's, and nvidia-pytriton"""


class Answer(NamedTuple):
    model: str
    container: str
    text: str


@dataclass(frozen=True)
class Recipe:
    name: str
    command: tuple[str, ...]
    missing: Callable[[], str]
    """says which program is not installed, or "" """
    files: Callable[[], dict[str, bytes]] = dict
    """files of the model's archive besides its name"""
    content_type: str = "text/plain"
    body: Callable[[str], bytes] = str.encode
    text: Callable[[bytes], str] = bytes.decode
    environment: dict[str, str] = field(default_factory=dict)

    def archive(self, model: str) -> bytes:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for name, data in {**self.files(), "name.txt": model.encode()}.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return raw.getvalue()

    def answer(self, body: bytes) -> Answer:
        return Answer(*self.text(body).split(" ", 2))


def _programs(*names: str, modules: tuple[str, ...] = ()) -> Callable[[], str]:
    def missing() -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        absent = [name for name in names if shutil.which(name, path=path) is None]
        absent += [name for name in modules if importlib.util.find_spec(name) is None]
        return ", ".join(absent)

    return missing


def _python_with(module: str, variable: str) -> Callable[[], str]:
    def missing() -> str:
        if os.environ.get(variable) or importlib.util.find_spec(module) is not None:
            return ""
        return f"{module}, for which {variable} may name another interpreter"

    return missing


_mlflow_missing = _python_with("mlflow", MLFLOW_PYTHON)


@cache
def _mlflow_model() -> dict[str, bytes]:
    """Made by MLflow itself, once for all models of the recipe."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "model")
        code = (
            f"import mlflow; mlflow.pyfunc.save_model({str(folder)!r}, "
            f"pip_requirements=['mlflow'], python_model={str(FOLDER / 'mlflow/model.py')!r})"
        )
        command = [os.environ.get(MLFLOW_PYTHON, sys.executable), "-c", code]
        subprocess.run(command, check=True, timeout=300, capture_output=True, cwd=made)
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }


def _mlflow_command(program: str) -> tuple[str, ...]:
    programs = Path(os.environ.get(MLFLOW_PYTHON, sys.executable)).parent
    return "bash", "-c", f"PATH={shlex.quote(str(programs))}:$PATH exec {program}"


def _mlflow_recipe(name: str, program: str, missing: Callable[[], str]) -> Recipe:
    return Recipe(
        name,
        _mlflow_command(program),
        missing,
        files=_mlflow_model,
        content_type="application/json",
        body=lambda text: json.dumps(
            {"dataframe_split": {"columns": ["text"], "data": [[text]]}}
        ).encode(),
        text=lambda body: str(json.loads(body)["predictions"][0]),
        environment={
            "MLFLOW_DEPLOYMENT_FLAVOR_NAME": "python_function",
            # Installs nothing at each start, as in an image of `mlflow models build-docker`.
            "MLFLOW_DISABLE_ENV_CREATION": "true",
        },
    )


def _triton_request(text: str) -> bytes:
    tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    return json.dumps({"inputs": [tensor]}).encode()


SOURCE = shlex.quote(f"{FOLDER}/compiled/serve.c")
COMPILE = f'cc -O2 -pthread -o "$TMPDIR/serve" {SOURCE} && exec "$TMPDIR/serve"'
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "nginx-gunicorn-flask",
            (f"{FOLDER}/nginx_flask/serve",),
            _programs("nginx", modules=("gunicorn", "flask")),
        ),
        Recipe(
            "multi-model-server",
            ("python3", f"{FOLDER}/multi_model_server/serve.py"),
            _programs("java", "multi-model-server", modules=("sagemaker_inference",)),
            files=lambda: {
                "code/inference.py": (FOLDER / "multi_model_server/inference.py").read_bytes()
            },
            content_type="application/octet-stream",
            environment={"SAGEMAKER_MODEL_SERVER_WORKERS": "1"},
        ),
        Recipe(
            "fastapi",
            ("python3", f"{FOLDER}/fastapi/app.py"),
            _programs(modules=("fastapi", "uvicorn")),
        ),
        Recipe("compiled", ("bash", "-c", COMPILE), _programs("cc")),
        _mlflow_recipe(
            "mlflow-models-serve",
            "mlflow models serve -m /opt/ml/model -h 0.0.0.0 -p 8080 --env-manager local",
            _mlflow_missing,
        ),
        _mlflow_recipe(
            "mlflow-container",
            "python -c \"from mlflow.models.container import _serve; _serve('local')\"",
            lambda: _mlflow_missing() or _programs("nginx")(),
        ),
        Recipe(
            "pytriton",
            (os.environ.get(PYTRITON_PYTHON, sys.executable), f"{FOLDER}/pytriton/serve.py"),
            _python_with("pytriton", PYTRITON_PYTHON),
            content_type="application/json",
            body=_triton_request,
            text=lambda body: str(json.loads(body)["outputs"][0]["data"][0]),
        ),
    )
}
