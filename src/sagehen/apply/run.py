"""Runs `sagehen apply` and `sagehen delete`: read, plan, show, confirm, perform."""

import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import typer

from sagehen.apply.client import Aws, Destination, connect
from sagehen.apply.perform import RunInterrupted, StackRun, perform, read_actual
from sagehen.apply.plan import StackPlan, make_plan, plan_removal
from sagehen.apply.resources import KINDS
from sagehen.apply.show import render_outputs, render_plan
from sagehen.apply.stack import Stack, claimed, load_stack
from sagehen.apply.template.desired import Resolver
from sagehen.apply.template.parameters import read_assignments
from sagehen.apply.template.reading import read_template_file
from sagehen.apply.template.template import read_template
from sagehen.base.errors import Invalid
from sagehen.base.terminal import err, out

__all__ = ["CHANGES", "INTERRUPTED", "Options", "apply_template", "delete_stack"]

CHANGES = 3
"""exit status of a dry run with changes; 2 is a wrong command line"""
INTERRUPTED = 130
_STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of both commands."""

    stack: str | None
    """default: the file's name"""
    yes: bool
    timeout_seconds: float
    home: Path | None
    config: Path | None


def apply_template(
    file: Path,
    parameters: Sequence[str],
    options: Options,
    *,
    adopt: bool = False,
    dry_run: bool = False,
) -> int:
    """Makes what a template describes; returns the exit status.

    Raises SagehenError if the template is wrong or a step fails.
    """
    template = read_template(read_template_file(file), KINDS)
    assignments = read_assignments(parameters)
    name = _stack_name(options.stack, file)
    aws = connect(options.home, options.config)
    stack = load_stack(aws, name)
    resolver = Resolver(template, assignments, name, Destination(aws), stack.content)
    desired = resolver.resolve_all()
    outputs = resolver.kept_outputs(stack.content.outputs)
    plan = make_plan(desired, stack.content, read_actual(aws, desired), adopt=adopt)
    if template.skipped:
        out.print(
            "Skipped, as they only concern CDK's own bootstrap and statistics: "
            f"{', '.join(template.skipped)}.",
            markup=False,
        )
    out.print(render_plan(plan, name))
    if dry_run:
        return CHANGES if plan.changes_anything else 0
    is_written = outputs == stack.content.outputs and not stack.content.has_plain
    if plan.changes_anything or plan.is_to_be_written or not is_written:
        _confirm(plan, options)
        status, outputs = _run(plan, resolver, aws, stack, options)
        if status:
            return status
    if outputs:
        out.print(render_outputs(outputs, resolver.descriptions(), resolver.hidden_outputs()))
    return 0


def delete_stack(file: Path | None, options: Options) -> int:
    """Deletes a stack; returns the exit status.

    Raises SagehenError if a step fails or the stack cannot be read.
    """
    if file is None and options.stack is None:
        raise Invalid("Give the template that was applied, or --stack NAME.")
    if file is not None and options.stack is None and not file.exists():
        raise Invalid(f"There is no template {file}. Give --stack NAME if the file was removed.")
    name = _stack_name(options.stack, file or Path())
    aws = connect(options.home, options.config)
    stack = load_stack(aws, name)
    if not stack.version:
        out.print(f"There is no stack {name}.", markup=False)
        return 0
    plan = plan_removal(stack.content)
    out.print(render_plan(plan, name))
    _confirm(plan, options)
    status, _ = _run(plan, None, aws, stack, options)
    if not status:
        out.print(f"The stack {name} was deleted.", markup=False)
    return status


def _run(
    plan: StackPlan,
    resolver: Resolver | None,
    aws: Aws,
    stack: Stack,
    options: Options,
) -> tuple[int, dict[str, str]]:
    try:
        with _stoppable() as stop, claimed(aws, stack) as journal:
            perform(plan, resolver, StackRun(aws, journal, stop, _say, options.timeout_seconds))
            return 0, journal.content.outputs
    except RunInterrupted as error:
        waits = f" {error}." if str(error) else ""
        err.print(f"Stopped.{waits} Run the same command again to continue.", markup=False)
        return INTERRUPTED, {}


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C or SIGTERM sets, so that the current step finishes.

    A second signal ends the run at once.
    """
    stop = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        err.print("Stopping after the current step. Press Ctrl-C again to stop at once.")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _confirm(plan: StackPlan, options: Options) -> None:
    if plan.destroys and not options.yes and at_a_terminal():
        typer.confirm("Resources will be deleted or replaced. Continue?", abort=True)


def at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _stack_name(option: str | None, file: Path) -> str:
    # AWS CDK writes the stack House into House.template.json.
    name = option if option is not None else file.stem.removesuffix(".template")
    if not _STACK_NAME.fullmatch(name):
        raise Invalid(
            f"{name!r} cannot be the name of a stack, which has letters, digits and hyphens, the "
            "first a letter. Give one with --stack."
        )
    return name


def _say(text: str) -> None:
    out.print(text, markup=False)
