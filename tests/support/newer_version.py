"""A later release of Sagehen: this one, with what the next may add."""

import shutil
from pathlib import Path

import sagehen

__all__ = ["VERSION", "make_newer_version"]

VERSION = "0.2.0"
_REVISION = "9001"
_MIGRATION = f'''
import sqlalchemy as sa
from alembic import op

revision = "{_REVISION}"
down_revision = "{{before}}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table("of_newer", sa.Column("id", sa.Integer(), primary_key=True))
    op.add_column("nodes", sa.Column("of_newer", sa.String(length=9), server_default="x"))
    op.add_column("endpoints", sa.Column("of_newer", sa.String(length=9), nullable=True))
'''
_CHANGES = {
    "__init__.py": (f'"{sagehen.__version__}"', f'"{VERSION}"'),
    # What it tells older gateways and agents, and they do not know.
    "frame/routes.py": (
        "    version: int = 0\n",
        '    of_newer: tuple[str, ...] = ("x",)\n    version: int = 0\n',
    ),
    "frame/nodes.py": ("AGENT_API_VERSIONS = (1,)", "AGENT_API_VERSIONS = (2, 1)"),
    "gateway/peers/peer_link.py": ("[CLUSTER_VERSION]", "[2, CLUSTER_VERSION]"),
}


def make_newer_version(folder: Path) -> Path:
    """Returns the folder to put into PYTHONPATH."""
    package = folder / "sagehen"
    # With what is compiled: times of files are kept.
    shutil.copytree(Path(sagehen.__file__).parent, package)
    for name, (old, new) in _CHANGES.items():
        file = package / name
        text = file.read_text()
        assert old in text, file
        file.write_text(text.replace(old, new, 1))
    versions = package / "state" / "migrations" / "versions"
    before = max(file.name.partition("_")[0] for file in versions.glob("[0-9]*.py"))
    (versions / f"{_REVISION}_of_newer.py").write_text(_MIGRATION.format(before=before))
    return folder
