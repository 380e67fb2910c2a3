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
from support.fixtures.container_relay import certificates, far

__all__ = [
    "around",
    "base",
    "certificates",
    "clock",
    "far",
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
