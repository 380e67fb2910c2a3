"""`sagehen adopt`: what to do with a state and objects that are not known to belong together."""

import sys
from typing import Annotated

import typer

from sagehen.config import load_settings
from sagehen.errors import Invalid
from sagehen.home import locked, prepare_home
from sagehen.store.opening import adopt_state, state_name
from sagehen.terminal import ConfigOption, HomeOption, out, plain_errors

__all__ = ["adopt"]


def adopt(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Use a state and objects together, though nothing shows that they belong together."""
    with plain_errors():
        settings = load_settings(config, home=home)
        place = prepare_home(settings.home)
        hours = settings.object_trash_seconds / 3600
        said = (
            f"The state {state_name(settings)} is to be used with the objects in {place.objects}. "
            f"Files that it does not know are moved to the trash, and deleted after {hours:g} h."
        )
        out.print(said, markup=False)
        if not yes:
            if not sys.stdin.isatty():
                raise Invalid("Nobody can be asked here: give --yes.")
            typer.confirm("Go on?", abort=True)
        with locked(place):
            unknown, missing = adopt_state(settings)
        out.print(
            f"Done. Files that the state does not know: {unknown}; objects and parts whose file is "
            f"missing: {missing}. Start the server with `sagehen up`.",
            markup=False,
        )
