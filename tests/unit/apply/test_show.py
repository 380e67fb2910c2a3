"""Plans and outputs as they are printed, without what is hidden."""

import io

import msgspec
import pytest
from rich.console import Console

from sagehen.apply.client import Destination
from sagehen.apply.plan import Difference, make_plan
from sagehen.apply.resources import KINDS
from sagehen.apply.show import render_outputs, render_plan
from sagehen.apply.stack import StackContent
from sagehen.apply.template.desired import Resolver
from sagehen.apply.template.reading import read_text
from sagehen.apply.template.template import read_template
from support.apply_world import World
from support.templates import TOPIC


@pytest.mark.parametrize(
    "expression",
    [
        "!Ref S",
        "!Base64 {Ref: S}",
        "!Base64 {'Fn::Sub': 'user:${S}'}",
        "!Sub ['${a}', {a: !Base64 {Ref: S}}]",
        "!Join ['-', [a, !Base64 {Ref: S}]]",
        "!Select [0, !Split ['s', !Ref S]]",
        "!Select [1, !Ref L]",
    ],
)
def test_what_is_made_of_a_secret_is_hidden(expression):
    text = f"""
Parameters:
  S: {{Type: String, NoEcho: true, Default: hush}}
  L: {{Type: CommaDelimitedList, NoEcho: true, Default: "a,hush"}}
Resources:
  T:
    Type: {TOPIC}
    Properties: {{DisplayName: {expression}, Tags: [{{Key: k, Value: shown}}]}}
Outputs: {{V: {{Value: {expression}}}, W: {{Value: shown}}}}
"""
    template = read_template(read_text(text, "t.yaml"), KINDS)
    resolver = Resolver(template, {}, "stack", Destination(World()), StackContent())
    (topic,) = resolver.resolve_all()
    assert topic.hidden == ("DisplayName",)
    assert resolver.hidden_outputs() == {"V"}
    plan = make_plan([topic], StackContent(), {})
    change = Difference("DisplayName", None, topic.properties["DisplayName"])
    step = msgspec.structs.replace(plan.steps[0], changes=(change,))
    output = io.StringIO()
    console = Console(file=output)
    console.print(render_plan(msgspec.structs.replace(plan, steps=(step,)), "stack"))
    console.print(render_outputs(resolver.outputs(), {}, resolver.hidden_outputs()))
    printed = output.getvalue()
    assert "DisplayName: (none) -> ****\n" in printed
    assert "  V  ****  \n  W  shown" in printed
    # Nor is it anything but a text to those that write and send it.
    assert type(resolver.outputs()["V"]) is type(topic.properties["DisplayName"]) is str
