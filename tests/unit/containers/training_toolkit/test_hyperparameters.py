"""Hyperparameters, as AWS's toolkit makes arguments of them."""

import pytest

from sagehen.containers.training_toolkit.errors import CannotRun
from sagehen.containers.training_toolkit.hyperparameters import read_parameters, to_arguments

GIVEN = {
    "sagemaker_program": '"train.py"',
    "sagemaker_estimator_class_name": '"SKLearn"',
    "_tuning_objective_metric": "rmse",
    "n": '"abc"',
    "epochs": "3",
    "flag": "true",
    "nothing": "null",
    "map": '{"b": null, "a": 1}',
    "list": "[1, 2.5]",
    "plain": "hello world",
    "almost": '{"a": 1',
    "number": 7,
}


def test_values_that_are_json_are_read_and_the_toolkits_own_are_kept_apart():
    read = read_parameters(GIVEN)
    assert read.user == {
        "n": "abc",
        "epochs": 3,
        "flag": True,
        "nothing": None,
        "map": {"b": None, "a": 1},
        "list": [1, 2.5],
        "plain": "hello world",
        "almost": '{"a": 1',
        "number": 7,
    }
    assert read.text("sagemaker_program") == "train.py"
    assert read.of_framework == {"sagemaker_estimator_class_name": "SKLearn"}


def test_arguments_are_in_the_order_of_their_names():
    # What the toolkit itself answers for these.
    assert to_arguments(read_parameters(GIVEN).user) == [
        *("--almost", '{"a": 1'),
        *("--epochs", "3"),
        *("--flag", "True"),
        *("--list", "[1, 2.5]"),
        *("--map", "a=1,b=None"),
        *("-n", "abc"),
        *("--nothing", ""),
        *("--number", "7"),
        *("--plain", "hello world"),
    ]


@pytest.mark.parametrize("given", [{"a=b": "1"}, {"a": "1\0"}, {"a\0": "1"}])
def test_what_no_process_can_be_given_is_refused_by_name(given):
    with pytest.raises(CannotRun, match="cannot be given to a script"):
        read_parameters(given)
