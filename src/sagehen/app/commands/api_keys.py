"""`sagehen api-key`: manages API keys."""

import hashlib
import re
import secrets
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sagehen.app.commands.output import json_text, print_line, print_table, time_text
from sagehen.base.config import load_settings
from sagehen.base.errors import AlreadyExists, Invalid, NotFound
from sagehen.base.home import prepare_home
from sagehen.base.terminal import ConfigOption, HomeOption, JsonOption, plain_errors

if TYPE_CHECKING:
    # slow to import, and unneeded by other commands
    from sagehen.state.database import Database

__all__ = ["key_app"]

key_app = typer.Typer(
    help="Manage the API keys of the Async-Inference-Service.", no_args_is_help=True
)

NameArgument = Annotated[str, typer.Argument(help="The name of the key, not the key itself.")]

KEY_LENGTH = 40
"""238 bits, API Gateway's length"""
_KEY_ALPHABET = string.ascii_letters + string.digits
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@key_app.command()
def create(name: NameArgument, home: HomeOption = None, config: ConfigOption = None) -> None:
    """Create a key and print it, this once: only its digest is kept."""
    from sagehen.base.clock import SYSTEM
    from sagehen.services.inference_service import service_store as inference_services
    from sagehen.services.inference_service.records import ApiKeyRecord

    with plain_errors():
        if not _NAME.fullmatch(name):
            raise Invalid("A key's name has 1 to 64 letters, digits, dots, hyphens, underscores.")
        key = "".join(secrets.choice(_KEY_ALPHABET) for _ in range(KEY_LENGTH))
        digest = hashlib.sha256(key.encode()).hexdigest()
        record = ApiKeyRecord(name=name, key_sha256=digest, created_at=SYSTEM.now())
        with _state(home, config) as database, database.write() as connection:
            if not inference_services.add_key(connection, record):
                raise AlreadyExists(f"There is a key {name} already; delete it first.")
        print_line(key)


@key_app.command("list")
def show_all(
    as_json: JsonOption = False, home: HomeOption = None, config: ConfigOption = None
) -> None:
    """List the keys by name, with the time of their creation."""
    from sagehen.services.inference_service import service_store as inference_services

    with plain_errors():
        with _state(home, config) as database, database.read() as connection:
            keys = inference_services.all_keys(connection)
        shown = [{"name": key.name, "created_at": time_text(key.created_at)} for key in keys]
        if as_json:
            print_line(json_text(shown))
        elif not shown:
            print_line("There are no keys.")
        else:
            print_table([("Name", "Created"), *(tuple(key.values()) for key in shown)])


@key_app.command()
def delete(name: NameArgument, home: HomeOption = None, config: ConfigOption = None) -> None:
    """Delete a key; jobs that were started with it go on."""
    from sagehen.services.inference_service import service_store as inference_services

    with plain_errors(), _state(home, config) as database, database.write() as connection:
        if not inference_services.delete_key(connection, name):
            raise NotFound(f"There is no key {name}.")


@contextmanager
def _state(home: Path | None, config: Path | None) -> "Iterator[Database]":
    """Opens the state itself, because no server is needed."""
    from sagehen.state.database import Database
    from sagehen.state.migrate import upgrade

    settings = load_settings(config, home=home)
    prepare_home(settings.home)
    upgrade(settings.state_url)
    database = Database(settings.state_url)
    try:
        yield database
    finally:
        database.close()
