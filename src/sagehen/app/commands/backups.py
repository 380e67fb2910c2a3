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
    target: Annotated[Path, typer.Argument(help="The backup: a folder that does not exist yet.")],
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
        manifest = take_backup(settings, target, allow_missing=allow_missing)
        out.print(
            f"{target} is a backup of {settings.home}: the state with small objects in it, and "
            f"{manifest.objects} files of larger ones with {manifest.object_bytes} bytes.",
            markup=False,
        )
        if manifest.missing:
            out.print(
                f"Missing in the home: {len(manifest.missing)} files of objects.", markup=False
            )
        if manifest.object_store_url is not None:
            out.print(
                f"The objects in {manifest.object_store_url} are not in it: back them up there.",
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
    """Restore a backup into an empty home, or with --replace over another."""
    from sagehen.app.backup import restore_backup

    with plain_errors():
        # The settings in force will be those in the backup.
        saved_config = source / "home" / "sagehen.toml"
        config_in_force = config
        if saved_config.is_file() and not os.environ.get(f"{PREFIX}CONFIG"):
            config_in_force = config or saved_config
        settings = load_settings(config_in_force, home=home)
        manifest, replaced = restore_backup(settings, source, replace=replace)
        out.print(
            f"{settings.home} was restored from the backup of {manifest.created_at}: the state "
            f"with the small objects in it, and {manifest.objects} files of larger objects. Start "
            f"the server: sagehen up --home {settings.home}",
            markup=False,
        )
        if replaced is not None:
            out.print(f"The files that were there before are in {replaced}.", markup=False)


def adopt(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Use a state and objects together, even if nothing shows that they are a pair."""
    with plain_errors():
        settings = load_settings(config, home=home)
        server_home = prepare_home(settings.home)
        hours = settings.object_trash_seconds / 3600
        notice = (
            f"The state {state_name(settings)} will be used with the objects in "
            f"{server_home.objects}. Files that the state does not name go to the trash, and are "
            f"deleted after {hours:g} h."
        )
        out.print(notice, markup=False)
        if not yes:
            if not sys.stdin.isatty():
                raise Invalid(
                    "Standard input is not a terminal, so nobody can confirm. Give --yes."
                )
            typer.confirm("Continue?", abort=True)
        with keeping_private(), locked(server_home):
            unknown, missing = adopt_state(settings)
        out.print(
            f"Done. Files that the state does not know: {unknown}; objects and parts whose file is "
            f"missing: {missing}. Start the server with `sagehen up`.",
            markup=False,
        )
