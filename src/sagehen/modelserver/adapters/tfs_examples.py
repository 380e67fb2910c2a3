"""TensorFlow Serving's classify and regress: features by name in, one result for each row out."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from sagehen.modelserver.adapters.named_tensors import LISTS, NamedRows, Tensor

__all__ = ["read_examples", "results"]


def read_examples(content: Mapping[str, Any], inputs: Sequence[Tensor]) -> NamedRows:
    """The `examples`, each with what the `context` says of all, as serialized tf.Example.

    Raises ValueError.
    """
    import numpy

    if len(inputs) != 1 or inputs[0].dtype != object:
        raise ValueError("the signature takes no examples: ask with tfs-method=predict")
    examples, context = content.get("examples"), content.get("context") or {}
    if not isinstance(examples, list) or not examples:
        raise ValueError("Missing 'examples' key")
    if not all(isinstance(each, dict) for each in [*examples, context]):
        raise ValueError("each example must be an object of features")
    serialized = [_serialized({**context, **example}) for example in examples]
    return NamedRows(len(examples), {inputs[0].name: numpy.array(serialized, object)}, LISTS)


def _serialized(features: Mapping[str, Any]) -> bytes:
    from tensorflow import train

    made = {name: _feature(name, value, train) for name, value in features.items()}
    data: bytes = train.Example(features=train.Features(feature=made)).SerializeToString()
    return data


def _feature(name: str, value: Any, train: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if all(isinstance(each, int) for each in values):
        return train.Feature(int64_list=train.Int64List(value=values))
    if all(isinstance(each, int | float) for each in values):
        return train.Feature(float_list=train.FloatList(value=values))
    if all(isinstance(each, str) or _is_bytes(each) for each in values):
        data = [
            each.encode() if isinstance(each, str) else base64.b64decode(each["b64"])
            for each in values
        ]
        return train.Feature(bytes_list=train.BytesList(value=data))
    raise ValueError(f"feature {name!r} must be numbers or text, or a list of either")


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def results(outputs: Mapping[str, Any], method: str) -> list[Any]:
    """Pairs of label and score for classify, a number for regress. Raises ValueError."""
    if method == "regress":
        values: list[Any] = next(iter(outputs.values())).reshape(-1).tolist()
        return values
    labels, scores = outputs.get("classes"), outputs.get("scores")
    if scores is None:
        raise ValueError("the signature's outputs are not those of a classifier")
    if labels is None:
        return [[["", score] for score in row] for row in scores.tolist()]
    return [
        [[label, score] for label, score in zip(*pair, strict=True)]
        for pair in zip(labels.tolist(), scores.tolist(), strict=True)
    ]
