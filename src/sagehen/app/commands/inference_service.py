"""`sagehen inference-service`: deletes services."""

import json
import sys
from typing import Annotated

import typer

from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, plain_errors

__all__ = ["inference_service_app"]

inference_service_app = typer.Typer(
    help="Delete services of the Async-Inference-Service.", no_args_is_help=True
)


@inference_service_app.command()
def delete(
    stage: Annotated[str, typer.Argument(help="The stage of the service.")],
    as_json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete a service: its waiting jobs are removed, its running jobs are stopped."""
    from sagehen.apply.client import connect_home

    with plain_errors():
        answer = connect_home(home, config).own("DELETE", "inference-services", stage)
        text = (
            f"The inference service {stage} is deleted. Of its jobs {answer['removed_jobs']} were "
            f"waiting and are removed, {answer['stopped_jobs']} were running and are being stopped."
        )
        sys.stdout.write((json.dumps(answer) if as_json else text) + "\n")
