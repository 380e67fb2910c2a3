"""How answers become an output: AssembleWith."""

from sagehen.services.sagemaker.transform.records.batches import Batch

__all__ = ["assemble"]


def assemble(batch: Batch, answer: bytes, assemble_with: str) -> bytes:
    """Returns what the output has of a batch.

    `Line` ends each answer with a newline, unless it ends with one already.
    """
    if assemble_with != "Line" or answer.endswith(b"\n"):
        return answer
    return answer + b"\n"
