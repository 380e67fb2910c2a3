"""The demo: many small models behind one multi-model endpoint."""

from sagehen.app.demo.story import run

__all__ = ["run"]
