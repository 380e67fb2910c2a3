"""Writes the pages of docs that are made from the code: settings, metrics, operations, templates.

Run `python scripts/reference.py` after changing either; a test compares.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from sagehen.app.api.application import OPERATIONS
from sagehen.apply.client import Destination
from sagehen.apply.resources import KINDS, ResourceKind
from sagehen.apply.resources.sagemaker import EndpointKind, SageMakerKind
from sagehen.base.config import PREFIX
from sagehen.base.metrics import METRICS, OWN, Metric
from sagehen.base.metrics import MetricKind as MetricKind
from sagehen.base.settings import Settings
from sagehen.base.settings.section import Section
from sagehen.services.s3.operations import OPERATIONS as S3_OPERATIONS

DOCS = Path(__file__).parent.parent / "docs"
CONTENTS_START, CONTENTS_END = "<!-- contents: start -->", "<!-- contents: end -->"
START, END = "<!-- made from the code: start -->", "<!-- made from the code: end -->"


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Each can stand in `sagehen.toml` in the home, or in the environment under the name in the",
        "second column; the environment wins over the file, the command line over both. Lists and",
        "tables in the environment are JSON; of a section, each key has a variable of its own. An",
        "unknown key is an error.",
    ]
    for section in Settings.__bases__:
        assert issubclass(section, Section)
        lines += _settings_table(f"{section.__doc__}".rstrip("."), section, PREFIX)
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            prefix = f"{PREFIX}{name.upper()}__"
            lines += _settings_table(f"[{name}]", field.annotation, prefix, field.description)
    return "\n".join(lines) + "\n"


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
        yield f"| `{name}` | {variable} | {shown} | {field.description} |"


def _shown(default: object) -> str:
    return ",".join(default) if isinstance(default, tuple) else str(default)


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "Those of SageMaker's namespaces are read by CloudWatch's API, for 15 days by the minute;",
        "all are told to Prometheus at `/_sagehen/metrics`, where counters begin anew with the",
        "server, and [who may read it](own-paths.md) is limited.",
        "[Read metrics](../howto/read-metrics.md) has examples, and",
        "[compatibility](../compatibility.md#cloudwatch) what is different.",
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


def operations_table() -> str:
    services: dict[str, Mapping[str, Any]] = {
        "sagemaker-runtime": dict.fromkeys(
            ("InvokeEndpoint", "InvokeEndpointAsync", "InvokeEndpointWithResponseStream")
        ),
        "s3": S3_OPERATIONS,
        **OPERATIONS,
    }
    lines = ["| service | operations |", "|---|---|"]
    for service, operations in sorted(services.items()):
        lines.append(f"| {service} | {', '.join(sorted(operations))} |")
    return "\n".join(lines)


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
        return f"{before}{START}\n{table()}\n{END}{after}"

    return make


def with_contents(page: str) -> str:
    """The page with a list of links to its headings; those of the third level share a line."""
    lines: list[str] = []
    for marks, heading in re.findall(r"^(##|###) (.+)$", page, re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        link = f"[{heading}](#{anchor})"
        if marks == "##":
            lines.append(f"- {link}")
        else:
            lines[-1] += (" · " if " · " in lines[-1] or ": [" in lines[-1] else ": ") + link
    before, _, rest = page.partition(CONTENTS_START)
    _, _, after = rest.partition(CONTENTS_END)
    return before + "\n".join([CONTENTS_START, "", *lines, "", CONTENTS_END]) + after


PAGES: dict[str, Callable[[str], str]] = {
    "reference/settings.md": lambda _: settings_page(),
    "reference/metrics.md": lambda _: metrics_page(),
    "reference/templates.md": with_table(types_table),
    "compatibility.md": lambda page: with_contents(with_table(operations_table)(page)),
}


def main() -> None:
    for name, make in PAGES.items():
        page = DOCS / name
        page.write_text(make(page.read_text() if page.exists() else ""))


if __name__ == "__main__":
    main()
