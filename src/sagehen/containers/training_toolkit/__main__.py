"""Runs the script that a training job's hyperparameters name, like AWS's sagemaker-training
toolkit.

    python -m sagehen.containers.training_toolkit

Imports little: a job of ten milliseconds should not cost much more.
"""

import os
import sys
import time
from collections.abc import Mapping

from sagehen.base.errors import SagehenError
from sagehen.containers.training_toolkit.errors import CannotRun, describe_failure
from sagehen.containers.training_toolkit.folders import Folders
from sagehen.containers.training_toolkit.hyperparameters import (
    Parameters,
    read_parameters,
    to_arguments,
)
from sagehen.containers.training_toolkit.process import run_command
from sagehen.containers.training_toolkit.script import (
    TORCH_DISTRIBUTED,
    ScriptKind,
    TrainingScript,
    bring_code,
    find_script,
    plan_command,
    plan_torchrun,
    torch_variables,
)
from sagehen.containers.training_toolkit.variables import make_variables

__all__ = ["main"]

INFO = 20
_LEVELS = {"CRITICAL": 50, "ERROR": 40, "WARNING": 30, "INFO": INFO, "DEBUG": 10, "NOTSET": 0}
_DISTRIBUTIONS = (
    "sagemaker_mpi_enabled",
    "sagemaker_parameter_server_enabled",
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled",
    "sagemaker_pytorch_ddp_enabled",
    "sagemaker_pytorch_xla_multi_worker_enabled",
)


def main(environ: Mapping[str, str]) -> int:
    """Returns the exit status."""
    folders = Folders(environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml")
    try:
        return _run(folders, environ)
    except SagehenError as error:
        folders.write_failure(str(error))
        _say("ERROR", f"Reporting training FAILURE\n{error}")
        return 1


def _run(folders: Folders, environ: Mapping[str, str]) -> int:
    """Raises SagehenError."""
    parameters = read_parameters(folders.read_config("hyperparameters.json"))
    program = environ.get("SAGEMAKER_PROGRAM") or parameters.text("sagemaker_program")
    if program is None:
        raise CannotRun(
            "The hyperparameter sagemaker_program is missing: it names the script to run, such as "
            "train.py. Estimators with an entry_point set it."
        )
    _refuse_distribution(parameters)
    submitted = parameters.text("sagemaker_submit_directory")
    bring_code(folders, submitted)
    script = find_script(folders, program, submitted)
    level = _log_level(parameters)
    environment = dict(environ) | make_variables(folders, parameters, program, level, environ)
    paths = [folders.code, *filter(None, [environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    python = _install(folders, script, environment)
    command = plan_command(script, python, to_arguments(parameters.user))
    if parameters.toolkit.get(TORCH_DISTRIBUTED):
        resources = folders.read_config("resourceconfig.json")
        environment |= torch_variables(resources)
        command = plan_torchrun(script, python, parameters, resources, environment) + command[1:]
    if level <= INFO:
        _say("INFO", f"Invoking script with the following command:\n\n{' '.join(command)}\n")
    return _invoke(folders, command, environment, script)


def _invoke(
    folders: Folders, command: list[str], environ: dict[str, str], script: TrainingScript
) -> int:
    os.chdir(folders.code)
    if script.kind is ScriptKind.COMMAND:
        os.chmod(script.name, 0o755)
    ended = run_command(command, environ, as_group=script.kind is ScriptKind.COMMAND)
    if ended.status != 0 and not ended.signalled:
        failure = describe_failure(ended.status, command, ended.errors)
        folders.write_failure(failure)
        _say("ERROR", f"Reporting training FAILURE\n{failure}")
    return ended.status


def _install(folders: Folders, script: TrainingScript, environ: dict[str, str]) -> str:
    """Returns the interpreter with the code's requirements, and puts its programs first in PATH.

    It is on top of a shared environment, locked as long as this process lives.
    """
    container_python = environ.get("SAGEHEN_PYTHON")
    package = script.kind is ScriptKind.MODULE
    if not package and not os.path.isfile(os.path.join(folders.code, "requirements.txt")):
        return container_python or sys.executable
    from sagehen.containers.training_toolkit.requirements import install

    installed = install(folders, package, environ, container_python)
    programs = [os.path.dirname(python) for python in (container_python, installed) if python]
    environ["PATH"] = os.pathsep.join([*programs, environ.get("PATH", os.defpath)])
    return container_python or installed


def _log_level(parameters: Parameters) -> int:
    """Raises CannotRun."""
    text = parameters.text("sagemaker_container_log_level") or str(INFO)
    if text.isascii() and text.isdigit():
        return int(text)
    if text.upper() in _LEVELS:
        return _LEVELS[text.upper()]
    raise CannotRun(
        f"sagemaker_container_log_level is {text!r}; it must be a number such as 20, or INFO."
    )


def _refuse_distribution(parameters: Parameters) -> None:
    """Raises CannotRun."""
    for name in _DISTRIBUTIONS:
        if parameters.toolkit.get(name):
            raise CannotRun(
                f"{name} is set, but this distribution is not supported. Use torch_distributed, "
                "leave `distribution` out of the estimator, or start the processes in a script of "
                "your own (entry_point run.sh)."
            )


def _say(level: str, text: str) -> None:
    # the toolkit's own name in logs
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    sys.stderr.write(f"{now} sagemaker-training-toolkit {level:8} {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(os.environ))
