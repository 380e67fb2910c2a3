"""Variables of SageMaker's containers that are another's second name, or cannot be meant here."""

import logging
from collections.abc import Mapping

from sagehen.errors import SettingError

__all__ = ["set_up_log", "under_one_name"]

_OWN_HANDLER = "sagemaker_inference.default_handler_service"


def under_one_name(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ`, what goes by several names under the one that is read.

    Raises SettingError: it asks for what this model server has not.
    """
    handler = environ.get("SAGEMAKER_HANDLER", "")
    if handler not in ("", _OWN_HANDLER):
        raise SettingError(
            f"SAGEMAKER_HANDLER is {handler!r}, but handlers of multi-model-server are not run "
            "here. Put model_fn and predict_fn, or transform_fn, into code/inference.py."
        )
    given = dict(environ)
    if seconds := environ.get("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS"):
        given["SAGEMAKER_MODEL_SERVER_TIMEOUT"] = seconds
    if workers := environ.get("SAGEMAKER_NUM_MODEL_WORKERS"):
        given.setdefault("SAGEMAKER_MODEL_SERVER_WORKERS", workers)
    return given


def set_up_log(level: int) -> None:
    """For the server's process, and for a worker's."""
    logging.basicConfig(
        # The logger's name tells the platform our own lines from those of the user's code.
        level=level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
