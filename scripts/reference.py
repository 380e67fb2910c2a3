"""Writes the pages of docs that are made from the code: settings, commands, metrics, operations,
templates.

Run `python scripts/reference.py` after changing either; a test compares.
"""

import inspect
import json
import runpy
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import botocore
import typer.main
from botocore.session import get_session
from pydantic.fields import FieldInfo

from sagehen.app.api.application import OPERATIONS
from sagehen.app.api.members import REFUSED, WITHOUT_EFFECT, input_members, is_listed
from sagehen.app.cli import app
from sagehen.app.reloading import RELOADED
from sagehen.apply.client import Destination
from sagehen.apply.resources import KINDS, ResourceKind
from sagehen.apply.resources.sagemaker import EndpointKind, SageMakerKind
from sagehen.base.config import PREFIX
from sagehen.base.metrics import METRICS, OWN, Metric
from sagehen.base.metrics import MetricKind as MetricKind
from sagehen.base.settings import Settings
from sagehen.base.settings.section import Section
from sagehen.services.s3.operations import OPERATIONS as S3_OPERATIONS
from sagehen.wire.services import service

UNSUPPORTED = runpy.run_path(str(Path(__file__).with_name("unsupported.py")))["UNSUPPORTED"]
DOCS = Path(__file__).parent.parent / "docs"
START, END = "<!-- made from the code: start -->", "<!-- made from the code: end -->"


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Each can stand in `sagehen.toml` in the home, or in the environment under the name in the",
        "second column; the environment wins over the file, the command line over both. Lists and",
        "tables in the environment are JSON; of a section, each key has a variable of its own. An",
        "unknown key is an error. `sagehen reload` has those with ↻ take effect while the server",
        "runs; the others do when it starts again.",
        "",
        f"Those to know first: {_first_settings()}.",
    ]
    for section in Settings.__bases__:
        assert issubclass(section, Section)
        lines += _settings_table(f"{section.__doc__}".rstrip("."), section, PREFIX)
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            prefix = f"{PREFIX}{name.upper()}__"
            lines += _settings_table(f"[{name}]", field.annotation, prefix, field.description)
    return "\n".join(lines) + "\n"


def _first_settings() -> str:
    first = (
        *("host", "port", "public_url", "database_url", "object_store_url", "images", "launcher"),
        *("image_versions", "gpus", "strict_capacity", "cluster", "smtp_host"),
    )
    assert set(first) <= Settings.model_fields.keys()
    return ", ".join(f"`{name}`" for name in first)


def _settings_table(
    heading: str, section: type[Section], prefix: str, description: str | None = None
) -> Iterator[str]:
    yield from ("", f"## {heading}", "")
    if description:
        yield from (description, "")
    yield from ("| key | variable | default | meaning |", "|---|---|---|---|")
    yield from _setting_rows(section.model_fields, prefix)


def _setting_rows(fields: Mapping[str, FieldInfo], prefix: str) -> Iterator[str]:
    for name, field in fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "" if default in (None, {}, ()) else f"`{_shown(default)}`"
        variable = f"`{prefix}{name.upper()}`"
        mark = " ↻" if prefix == PREFIX and name in RELOADED else ""
        yield f"| `{name}`{mark} | {variable} | {shown} | {field.description} |"


def _shown(default: object) -> str:
    return ",".join(default) if isinstance(default, tuple) else str(default)


WIDTH = 96
"""of the help texts"""


def commands_page() -> str:
    """The page of all commands, from their `--help`."""
    commands = dict(_commands(typer.main.get_command(app), ("sagehen",)))
    lines = [
        "# Commands",
        "",
        "Errors are one sentence on stderr, behind `sagehen: `, with the exit code 1; 2 is a wrong",
        "option. `--json` prints JSON for programs. Times are ISO 8601 in UTC. After",
        "`sagehen --install-completion` the Tab key completes commands, options, and the names of",
        "endpoints and jobs. `SAGEHEN_HOME` and `SAGEHEN_CONFIG` stand for `--home` and",
        "`--config`. What follows is what `--help` says.",
        "",
        "| command | |",
        "|---|---|",
    ]
    shown = {name: each for name, each in commands.items() if not each.older}
    for name, each in shown.items():
        lines.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {each.purpose} |")
    names = {inspect.unwrap(each.command.callback): name for name, each in shown.items()}
    older = [
        f"`{name}` is `{names[inspect.unwrap(each.command.callback)]}`"
        for name, each in commands.items()
        if each.older
    ]
    lines += ["", f"Older names still work: {'; '.join(older)}."]
    for name, each in shown.items():
        lines += ["", f"## {name}", "", "```text", each.help, "```"]
    return "\n".join(lines) + "\n"


class Command(NamedTuple):
    command: Any
    help: str
    older: bool
    """whether it is an older name of another"""

    @property
    def purpose(self) -> str:
        """The first paragraph of its docstring."""
        return " ".join(self.command.help.partition("\n\n")[0].split()).replace("|", r"\|")


def _commands(
    command: Any, path: tuple[str, ...], parent: Any = None, older: bool = False
) -> Iterator[tuple[str, Command]]:
    """Yields the commands that do something, with their names."""
    command.rich_markup_mode = None  # plain text
    context = command.context_class(
        command, info_name=path[-1], parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    )
    older = older or command.hidden
    if not hasattr(command, "commands"):
        yield " ".join(path), Command(command, command.get_help(context), older)
        return
    for name, inner in command.commands.items():
        yield from _commands(inner, (*path, name), context, older)


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "Those of SageMaker's namespaces are read by CloudWatch's API, for 15 days by the minute;",
        "all are told to Prometheus at `/_sagehen/metrics`, where counters begin anew with the",
        "server, and [who may read it](own-paths.md) is limited.",
        "[Read metrics](../howto/read-metrics.md) has examples, and",
        "[compatibility](../compatibility/cloudwatch.md#cloudwatch) what is different.",
        "",
        "| metric | namespace, dimensions | unit | for Prometheus | meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [_metric_row(metric) for metric in METRICS.values()]
    return "\n".join(lines) + "\n"


def _metric_row(metric: Metric) -> str:
    where = "only Prometheus"
    if metric.namespace != OWN:
        where = f"`{metric.namespace}`: {', '.join(metric.cloudwatch_dimensions)}"
    suffixes = {
        MetricKind.COUNTER: "_total",
        MetricKind.TIMING: "_sum, _count, quantile",
        MetricKind.GAUGE: "",
    }
    exposed = ""
    if metric.exposed_as is not None:
        suffix = suffixes[metric.kind]
        exposed = f"`{metric.exposed_as}{suffix if suffix == '_total' else ''}`"
        exposed += f" ({suffix})" if "," in suffix else ""
    return f"| {metric.cloudwatch_name} | {where} | {metric.unit} | {exposed} | {metric.help} |"


def served_operations() -> dict[str, Mapping[str, Any]]:
    """Functions by service and operation; None for operations of the gateway."""
    runtime = dict.fromkeys(
        ("InvokeEndpoint", "InvokeEndpointAsync", "InvokeEndpointWithResponseStream")
    )
    # The same requests as GetBucketLifecycleConfiguration and GetBucketNotificationConfiguration.
    older_names = dict.fromkeys(("GetBucketLifecycle", "GetBucketNotification"))
    return {"sagemaker-runtime": runtime, "s3": {**S3_OPERATIONS, **older_names}, **OPERATIONS}


ALWAYS_REFUSED = {"application-autoscaling": {"GetPredictiveScalingForecast"}}
"""operations whose code only says why"""


def operations_page() -> str:
    """Every operation of each service that is served: whole, in part, or refused."""
    services = served_operations()
    lines = [
        "# Operations",
        "",
        f"The operations of each service in botocore {botocore.__version__}.",
        "*Partly*: some members are refused by name. Members that",
        "[have no effect](stored-without-effect.md) have a page of their own. An operation that is",
        "not there is refused with an error that names it: `UnsupportedOperation` with status 400",
        "(S3: `NotImplemented`), which clients do not retry. Services that are not in this table",
        "are refused, too. [Compatibility](../compatibility/README.md) says how those that are",
        "there differ from AWS's.",
        "",
        "| service | yes | partly | no | of |",
        "|---|---|---|---|---|",
    ]
    sections = []
    for name in sorted(services):
        model = service(name)
        there = services[name].keys() & set(model.operation_names)
        there -= ALWAYS_REFUSED.get(name, set())
        refused = REFUSED.get(name, ())
        partly = {operation for operation in there if _listed_paths(name, operation, refused)}
        absent = set(model.operation_names) - there
        kinds = {"Yes": there - partly, "Partly": partly, "No": absent}
        counts = " | ".join(str(len(operations)) for operations in kinds.values())
        lines.append(f"| [{name}](#{name}) | {counts} | {len(model.operation_names)} |")
        sections += ["", f"## {name}"]
        for kind, operations in kinds.items():
            if operations:
                sections += ["", f"{kind}: {', '.join(sorted(operations))}."]
        if paths_of := _paths_by_operation(name, refused):
            sections += ["", "Members that are refused:", ""]
            sections += [f"- {who}: {', '.join(paths)}" for who, paths in paths_of.items()]
    return "\n".join([*lines, *sections]) + "\n"


def without_effect_page() -> str:
    lines = [
        "# Stored without effect",
        "",
        "Sagehen accepts these members, shows them where AWS does, and does not act on them. Every",
        "other one has an effect or is",
        "[refused by name](../compatibility/not-supported.md); that page also has attributes of",
        "topics and queues, and values, that have no effect. A test goes through the members of",
        f"all operations in botocore {botocore.__version__}.",
        "A structure that comes more than once in a request is listed at its first place.",
    ]
    for name, members in sorted(WITHOUT_EFFECT.items()):
        rows = [
            f"| {who} | {', '.join(paths)} | {reason} |"
            for reason in dict.fromkeys(members.values())
            for who, paths in _paths_by_operation(
                name, [member for member in members if members[member] == reason]
            ).items()
        ]
        if rows:
            lines += ["", f"## {name}", "", "| operations | members | why |", "|---|---|---|"]
            lines += sorted(rows)
    return "\n".join(lines) + "\n"


def known_members() -> str:
    """The members of all inputs in this botocore, those also that a newer one has brought."""
    services = {}
    for name, operations in sorted(served_operations().items()):
        model = get_session().get_service_model(name)
        members: dict[str, list[str]] = {}
        for operation in operations.keys() & set(model.operation_names):
            shape = model.operation_model(operation).input_shape
            members.setdefault(shape.name, [])
            for member, _, _ in input_members(shape):
                of, _, inner = member.partition(".")
                members.setdefault(of, []).append(inner)
        services[name] = {
            shape: " ".join(sorted(set(inner))) for shape, inner in sorted(members.items())
        }
    source = f"Members of inputs in botocore {botocore.__version__}. Made by scripts/reference.py."
    return json.dumps({"source": source, "services": services}, indent=1) + "\n"


def _paths_by_operation(name: str, listed: Collection[str]) -> dict[str, list[str]]:
    """Paths of listed members by the operations that have just these."""
    by_paths: dict[tuple[str, ...], list[str]] = {}
    for operation in sorted(served_operations()[name]):
        if paths := tuple(_listed_paths(name, operation, listed)):
            by_paths.setdefault(paths, []).append(operation)
    return {
        ", ".join(operations): [f"`{path}`" for path in paths]
        for paths, operations in by_paths.items()
    }


def _listed_paths(name: str, operation: str, listed: Collection[str]) -> list[str]:
    shape = service(name).operation_model(operation).input_shape
    members = input_members(shape, listed)
    return [path for member, path, _ in members if is_listed(listed, member)]


def unsupported_table() -> str:
    """The features that are refused by name."""
    lines = []
    for section, features in UNSUPPORTED.items():
        rows = [f"| {row.feature} | {row.operation} |" for row in features]
        lines += ["", f"### {section}", "", "| not supported | refused by |", "|---|---|", *rows]
    return "\n".join(lines[1:])


def unsupported_of_endpoints() -> str:
    """For the README."""
    features = ", ".join(row.feature for row in UNSUPPORTED["Endpoints"])
    return f"  {features}."


def types_table() -> str:
    """The resource types of templates."""
    section = TemplatePlace()
    lines = [
        "| type | properties | Ref | Fn::GetAtt | changed in place |",
        "|---|---|---|---|---|",
    ]
    for name, kind in sorted(KINDS.items()):
        attributes = kind.attributes("NAME", {}, section)
        listed = ", ".join(sorted(attributes.keys() - {"Ref"}))
        ref = attributes["Ref"].replace("NAME", "…").replace("name", "…")
        ref = f"`{ref}`" if kind.name_property else "its ARN"
        in_place = [member for member in kind.members if not kind.is_fixed(member)]
        changed = "Tags only" if kind.fixed is None else f"all but {', '.join(sorted(kind.fixed))}"
        changed = changed if kind.fixed != frozenset() else "all"
        lines.append(
            f"| {name} | {_properties(kind)} | {ref} | {listed} | "
            f"{changed if in_place else 'nothing'} |"
        )
    return "\n".join(lines)


def _properties(kind: ResourceKind) -> str:
    """Required ones in bold. SageMaker's are botocore's to say, and more with each version."""
    required = [f"**{member}**" for member in kind.required]
    if isinstance(kind, SageMakerKind):
        members = f"the members of Create{kind.noun}"
        if isinstance(kind, EndpointKind):
            members += " and UpdateEndpoint"
        return f"{members}; {', '.join(required)}" if required else members
    return ", ".join(
        f"**{member}**" if member in kind.required else member for member in sorted(kind.members)
    )


class TemplatePlace(Destination):
    """Somewhere."""

    def __init__(self) -> None:
        self.url, self.region = "http://127.0.0.1:9000", "us-east-1"
        self.account_id = "000000000000"
        self.partition, self.url_suffix = "aws", "amazonaws.com"


def with_table(table: Callable[[], str]) -> Callable[[str], str]:
    """The page with the table between its marks made anew."""

    def make(page: str) -> str:
        before, _, rest = page.partition(START)
        _, _, after = rest.partition(END)
        indent = before.rpartition("\n")[2]
        return f"{before}{START}\n{table()}\n{indent}{END}{after}"

    return make


PAGES: dict[str, Callable[[str], str]] = {
    "reference/settings.md": lambda _: settings_page(),
    "reference/cli.md": lambda _: commands_page(),
    "reference/metrics.md": lambda _: metrics_page(),
    "reference/templates.md": with_table(types_table),
    "reference/operations.md": lambda _: operations_page(),
    "compatibility/not-supported.md": with_table(unsupported_table),
    "reference/stored-without-effect.md": lambda _: without_effect_page(),
    "../src/sagehen/wire/known_members.json": lambda _: known_members(),
    "../README.md": with_table(unsupported_of_endpoints),
}


def main() -> None:
    for name, make in PAGES.items():
        page = DOCS / name
        page.write_text(make(page.read_text() if page.exists() else ""))


if __name__ == "__main__":
    main()
