"""Runs ONNX models, also with a fixed batch size."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.adapters.shared.named_tensors import Tensor, by_rows

__all__ = ["OnnxError", "OnnxSession"]

_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    "tensor(string)": "object",
    **{f"tensor(int{bits})": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"tensor(uint{bits})": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


class OnnxError(SagehenError):
    """ONNX Runtime reported an error."""


class OnnxSession:
    """A model in ONNX Runtime."""

    def __init__(self, path: Path, threads: int) -> None:
        """Raises what ONNX Runtime raises; OnnxError for inputs that requests cannot provide."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # More threads would take turns, and spinning ones take other instances' cores.
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._outputs = [output.name for output in self._session.get_outputs()]
        self.inputs = tuple(_tensor(node) for node in self._session.get_inputs())
        self._fixed = self._fixed_rows()

    @property
    def combines_rows(self) -> bool:
        """Whether one call may combine rows of several requests."""
        return all(tensor.shape for tensor in self.inputs)

    def _fixed_rows(self) -> int | None:
        """Returns None if the batch size is free or unknown."""
        fixed = {tensor.shape[0] if tensor.shape else None for tensor in self.inputs}
        return fixed.pop() if len(fixed) == 1 else None

    def run(self, arrays: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Raises OnnxError."""
        if self._fixed in (None, count):
            return self._run(arrays)
        return self._in_portions(arrays, count, self._fixed or 1)

    def _in_portions(self, arrays: Mapping[str, Any], count: int, size: int) -> dict[str, Any]:
        """Pads the last portion with copies of the last row."""
        import numpy

        portions: list[dict[str, Any]] = []
        for start in range(0, count, size):
            at = numpy.minimum(numpy.arange(start, start + size), count - 1)
            outputs = self._run({name: array[at] for name, array in arrays.items()})
            if any(not by_rows(output, size) for output in outputs.values()):
                raise OnnxError(f"the model takes {size} rows at a time, not {count}")
            portions.append({name: out[: count - start] for name, out in outputs.items()})
        return {name: _joined([part[name] for part in portions]) for name in self._outputs}

    def _run(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        try:
            outputs = self._session.run(None, arrays)
        except Exception as error:  # its exceptions share no base class
            if "bad_alloc" in str(error) or "ailed to allocate memory" in str(error):
                raise MemoryError(str(error)) from error
            raise OnnxError(str(error).replace("\n", " ").strip()) from error
        return dict(zip(self._outputs, outputs, strict=True))


def _tensor(node: Any) -> Tensor:
    import numpy

    if node.type not in _TYPES:
        raise OnnxError(
            f"its input {node.name!r} is {node.type}, which JSON and CSV cannot express: write a "
            "code/inference.py that makes one"
        )
    sizes = tuple(size if isinstance(size, int) and size > 0 else None for size in node.shape)
    # Unknown shapes look like single numbers.
    return Tensor(node.name, numpy.dtype(_TYPES[node.type]), sizes or None)


def _joined(parts: list[Any]) -> Any:
    import numpy

    if isinstance(parts[0], list):
        return [row for part in parts for row in part]
    return numpy.concatenate(parts)
