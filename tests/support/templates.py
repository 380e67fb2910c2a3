"""Templates worked out in memory."""

import pytest

from sagehen.apply.client import Destination
from sagehen.apply.resources import KINDS
from sagehen.apply.stack import StackContent
from sagehen.apply.template.desired import Resolver
from sagehen.apply.template.reading import read_text
from sagehen.apply.template.template import read_template
from sagehen.base.errors import Invalid
from support.apply_world import World

TOPIC = "AWS::SNS::Topic"


def worked_out(text, **given):
    """The resources by logical id, and the outputs."""
    template = read_template(read_text(text, "t.yaml"), KINDS)
    resolver = Resolver(template, given, "stack", Destination(World()), StackContent())
    resources = {one.logical_id: one for one in resolver.resolve_all()}
    return resources, resolver.outputs()


def value_of(expression, more="", **given):
    """What an expression of an output comes to."""
    text = f"{more}\nResources: {{T: {{Type: {TOPIC}}}}}\nOutputs: {{V: {{Value: {expression}}}}}"
    return worked_out(text, **given)[1]["V"]


def refusal(text, **given):
    with pytest.raises(Invalid) as caught:
        worked_out(text, **given)
    return str(caught.value)


def value_refusal(expression, more="", **given):
    with pytest.raises(Invalid) as caught:
        value_of(expression, more, **given)
    return str(caught.value)


def doubled(text, times):
    """A few lines that stand for 2 ** `times` texts."""
    for _ in range(times):
        text = "{'Fn::Sub': ['${a}${a}', {a: " + text + "}]}"
    return text


DECLARED = """
Parameters:
  P: {Type: String, Default: p}
  L: {Type: CommaDelimitedList, Default: "a, b,c"}
  N: {Type: Number, Default: 1.50}
Mappings:
  M: {one: {x: 1, y: [q, r]}, p: {x: mapped}}
Conditions:
  Yes: !Equals [!Ref P, p]
  No: !Not [!Condition Yes]
  Both: !And [!Condition Yes, !Condition No]
  Either: !Or [!Condition Both, !Equals [!FindInMap [M, one, x], "1"]]
"""
