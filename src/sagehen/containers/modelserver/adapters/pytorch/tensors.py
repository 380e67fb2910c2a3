"""Combines tensors of several requests in one call of a model where that is safe.

A model may treat the first dimension as time or normalize over it. So the first two requests are
predicted together and apart; batching requires equal results.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["TensorCalls", "rows_of"]

_RELATIVE, _ABSOLUTE = 1e-3, 1e-4
"""Larger batches change rounding slightly."""

log = logging.getLogger(__name__)

Group = tuple[Any, ...]
"""Type and row shape, equal for tensors that can be combined."""


class TensorCalls:
    """Calls a model, with combined tensors where safe."""

    def __init__(self, model: Callable[[Any], Any]) -> None:
        self._model = model
        self._trusted: dict[bool, bool] = {}
        """Whether combining is safe, for tables and for single rows."""

    def each(self, inputs: Sequence[Any]) -> list[Any]:
        """Raises what the model raises."""
        outputs: list[Any] = [None] * len(inputs)
        for places in _grouped(inputs):
            found = self._together([inputs[at] for at in places])
            for at, output in zip(places, found, strict=True):
                outputs[at] = output
        return outputs

    def _together(self, inputs: list[Any]) -> list[Any]:
        single = inputs[0].ndim < 2
        if len(inputs) == 1 or inputs[0].ndim == 0 or not self._trusts(inputs, single):
            return [self._model(values) for values in inputs]
        return self._joined(inputs, single)

    def _trusts(self, inputs: list[Any], single: bool) -> bool:
        if single not in self._trusted:
            self._trusted[single] = self._keeps_apart(_two_unlike(inputs), single)
            if not self._trusted[single]:
                log.info("The model's answer depends on the rows beside: each request goes alone.")
        return self._trusted[single]

    def _keeps_apart(self, pair: list[Any], single: bool) -> bool:
        apart = [self._model(values) for values in pair]
        try:
            together = self._joined(pair, single)
        except Exception:  # unsupported shape
            return False
        return all(map(_alike, apart, together))

    def _joined(self, inputs: list[Any], single: bool) -> list[Any]:
        import torch

        if single:
            output = self._model(torch.stack(inputs))
            return [_first_row(part) for part in _split(output, [1] * len(inputs))]
        return _split(self._model(torch.cat(inputs)), [len(values) for values in inputs])


def rows_of(values: Any) -> int:
    return int(values.shape[0]) if values.ndim > 1 else 1


def _grouped(inputs: Sequence[Any]) -> list[list[int]]:
    groups: dict[Group, list[int]] = {}
    for at, values in enumerate(inputs):
        shape = values.shape[1:] if values.ndim > 1 else values.shape
        groups.setdefault((values.ndim, values.dtype, shape), []).append(at)
    return list(groups.values())


def _two_unlike(inputs: list[Any]) -> list[Any]:
    """Picks different rows: equal ones would hide mixing."""
    import torch

    first = inputs[0]
    others = (values for values in inputs[1:] if not torch.equal(values, first))
    return [first, next(others, torch.zeros_like(first))]


def _split(output: Any, counts: list[int]) -> list[Any]:
    """Raises ValueError if the output lacks one row per input row."""
    if isinstance(output, tuple | list):
        parts = zip(*(_split(member, counts) for member in output), strict=True)
        return _complete([type(output)(part) for part in parts], counts)
    if isinstance(output, dict):
        members = {name: _split(member, counts) for name, member in output.items()}
        return [{name: members[name][at] for name in members} for at in range(len(counts))]
    if output.ndim == 0 or len(output) != sum(counts):
        raise ValueError("no row for each row")
    return list(output.split(counts))


def _complete(parts: list[Any], counts: list[int]) -> list[Any]:
    if len(parts) != len(counts):
        raise ValueError("nothing for each row")
    return parts


def _first_row(output: Any) -> Any:
    if isinstance(output, tuple | list):
        return type(output)(_first_row(member) for member in output)
    if isinstance(output, dict):
        return {name: _first_row(member) for name, member in output.items()}
    return output[0]


def _alike(one: Any, other: Any) -> bool:
    import torch

    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if one.shape != other.shape:
        return False
    return bool(torch.allclose(one, other, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))
