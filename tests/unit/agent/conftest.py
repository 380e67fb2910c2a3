"""Fixtures of these tests."""

from support.fixtures.agent import (
    home,
    make_archive,
    make_spec,
    node,
    objects,
    put_object,
    reader,
    settings,
)
from support.fixtures.agent_jobs import around, base, clock, jobs

__all__ = [
    "around",
    "base",
    "clock",
    "home",
    "jobs",
    "make_archive",
    "make_spec",
    "node",
    "objects",
    "put_object",
    "reader",
    "settings",
]
