"""A Python function behind NVIDIA Triton on port 8080: it answers with the model's name, the
container's id and its input."""

import os
import signal
import sys
import uuid
from pathlib import Path

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonLifecyclePolicy

MODEL = Path("/opt/ml/model/name.txt").read_text().strip()
CONTAINER = uuid.uuid4().hex


@batch
def infer(text: np.ndarray) -> dict[str, np.ndarray]:
    answers = [f"{MODEL} {CONTAINER} {row[0].decode()}".encode() for row in text]
    return {"answer": np.array(answers, dtype=object)[:, None]}


def main() -> None:
    # The model to which Triton's port for SageMaker sends invocations.
    os.environ["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"] = "echo"
    triton = Triton(
        config=TritonConfig(allow_sagemaker=True, sagemaker_port=8080),
        workspace="/tmp/pytriton",  # for Unix sockets, whose paths may have 107 bytes
        # Triton starts with the model. By default it starts without one, and its /ping answers 200.
        triton_lifecycle_policy=TritonLifecyclePolicy(
            launch_triton_on_startup=False, local_model_store=True
        ),
    )
    triton.bind(
        model_name="echo",
        infer_func=infer,
        inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
        outputs=[Tensor(name="answer", dtype=bytes, shape=(1,))],
        config=ModelConfig(max_batch_size=16),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # stops Triton first
    triton.serve()


if __name__ == "__main__":
    main()
