"""`sagehen backup`, `restore` and `adopt`: commands for a home's data."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sagehen.base.config import PREFIX, load_settings
from sagehen.base.errors import Invalid
from sagehen.base.home import keeping_private, locked, prepare_home
from sagehen.base.terminal import ConfigOption, HomeOption, out, plain_errors
from sagehen.state.opening import adopt_state, state_name

__all__ = ["adopt", "backup", "restore"]


def backup(
    target: Annotated[Path, typer.Argument(help="The backup: a folder that is not there yet.")],
    allow_missing: Annotated[
        bool, typer.Option(help="Take it although files of objects are missing in the home.")
    ] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Take a backup of state, objects, keys and settings, also while a server runs."""
    from sagehen.app.backup import take_backup

    with plain_errors():
        settings = load_settings(config, home=home)
        made = take_backup(settings, target, allow_missing=allow_missing)
        out.print(
            f"{target} is a backup of {settings.home}: the state with small objects in it, and "
            f"{made.objects} files of larger ones with {made.object_bytes} bytes.",
            markup=False,
        )
        if made.missing:
            out.print(f"Missing in the home: {len(made.missing)} files of objects.", markup=False)
        if made.object_store_url is not None:
            out.print(
                f"The objects in {made.object_store_url} are not in it: back them up there.",
                markup=False,
            )


def restore(
    source: Annotated[Path, typer.Argument(help="A backup that `sagehen backup` has taken.")],
    replace: Annotated[
        bool, typer.Option(help="Move aside what is in the home; nothing of it is deleted.")
    ] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Bring back a backup into an empty home, or with --replace over another."""
    from sagehen.app.backup import restore_backup

    with plain_errors():
        # The settings in force will be those in the backup.
        own = source / "home" / "sagehen.toml"
        chosen = config
        if own.is_file() and not os.environ.get(f"{PREFIX}CONFIG"):
            chosen = config or own
        settings = load_settings(chosen, home=home)
        made, aside = restore_backup(settings, source, replace=replace)
        out.print(
            f"{settings.home} is as it was backed up at {made.created_at}: the state with small "
            f"objects in it, and {made.objects} files of larger ones. Start the server with "
            f"`sagehen up --home {settings.home}`.",
            markup=False,
        )
        if aside is not None:
            out.print(f"What was there before is in {aside}.", markup=False)


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
        with keeping_private(), locked(place):
            unknown, missing = adopt_state(settings)
        out.print(
            f"Done. Files that the state does not know: {unknown}; objects and parts whose file is "
            f"missing: {missing}. Start the server with `sagehen up`.",
            markup=False,
        )
