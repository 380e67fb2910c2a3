"""A model for MLflow's scoring server: it answers with its name, the container's id and its input.

mlflow.pyfunc.save_model("model", python_model="model.py")
"""

import uuid
from pathlib import Path

import mlflow
from mlflow.pyfunc.model import PythonModel

ID_FILE = Path("/tmp/container-id")


def container_id() -> str:
    """The workers of a container are processes, which share its /tmp."""
    try:
        with ID_FILE.open("x") as file:
            file.write(uuid.uuid4().hex)
    except FileExistsError:
        pass
    return ID_FILE.read_text()


class Echo(PythonModel):
    def load_context(self, context):
        self.name = Path("/opt/ml/model/name.txt").read_text().strip()
        self.container = container_id()

    def predict(self, context, model_input, params=None):
        # MLflow takes type hints of its own kind only.
        return [f"{self.name} {self.container} {text}" for text in model_input["text"]]


mlflow.models.set_model(Echo())
