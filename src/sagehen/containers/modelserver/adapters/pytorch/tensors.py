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
        self._combinable: dict[bool, bool] = {}
        """Whether combining is safe, for tables and for single rows."""

    def call_all(self, inputs: Sequence[Any]) -> list[Any]:
        """Raises what the model raises."""
        outputs: list[Any] = [None] * len(inputs)
        for indices in _grouped(inputs):
            group_outputs = self._call_group([inputs[index] for index in indices])
            for index, output in zip(indices, group_outputs, strict=True):
                outputs[index] = output
        return outputs

    def _call_group(self, inputs: list[Any]) -> list[Any]:
        single = inputs[0].ndim < 2
        if len(inputs) == 1 or inputs[0].ndim == 0 or not self._can_combine(inputs, single):
            return [self._model(values) for values in inputs]
        return self._call_combined(inputs, single)

    def _can_combine(self, inputs: list[Any], single: bool) -> bool:
        if single not in self._combinable:
            self._combinable[single] = self._rows_are_independent(_two_different(inputs), single)
            if not self._combinable[single]:
                log.info(
                    "The model's answers depend on other rows: each request is predicted alone."
                )
        return self._combinable[single]

    def _rows_are_independent(self, pair: list[Any], single: bool) -> bool:
        apart = [self._model(values) for values in pair]
        try:
            combined = self._call_combined(pair, single)
        except Exception:  # unsupported shape
            return False
        return all(map(_close, apart, combined))

    def _call_combined(self, inputs: list[Any], single: bool) -> list[Any]:
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


def _two_different(inputs: list[Any]) -> list[Any]:
    """Picks different rows: equal ones would hide mixing."""
    import torch

    first = inputs[0]
    others = (values for values in inputs[1:] if not torch.equal(values, first))
    return [first, next(others, torch.zeros_like(first))]


def _split(output: Any, counts: list[int]) -> list[Any]:
    """Raises ValueError if the output lacks one row per input row."""
    if isinstance(output, tuple | list):
        parts = zip(*(_split(member, counts) for member in output), strict=True)
        return _check_count([type(output)(part) for part in parts], counts)
    if isinstance(output, dict):
        members = {name: _split(member, counts) for name, member in output.items()}
        return [{name: members[name][at] for name in members} for at in range(len(counts))]
    if output.ndim == 0 or len(output) != sum(counts):
        raise ValueError("no row for each row")
    return list(output.split(counts))


def _check_count(parts: list[Any], counts: list[int]) -> list[Any]:
    if len(parts) != len(counts):
        raise ValueError("nothing for each row")
    return parts


def _first_row(output: Any) -> Any:
    if isinstance(output, tuple | list):
        return type(output)(_first_row(member) for member in output)
    if isinstance(output, dict):
        return {name: _first_row(member) for name, member in output.items()}
    return output[0]


def _close(first: Any, second: Any) -> bool:
    import torch

    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(_close, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            _close(first[name], second[name]) for name in first
        )
    if first.shape != second.shape:
        return False
    return bool(torch.allclose(first, second, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))
