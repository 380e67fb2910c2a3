"""A Python function behind NVIDIA Triton on port 8080: it answers with the model's name, the
container's id and its input."""

import os
import uuid
from pathlib import Path

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

MODEL = Path("/opt/ml/model/name.txt").read_text().strip()
CONTAINER = uuid.uuid4().hex


@batch
def infer(text: np.ndarray) -> dict[str, np.ndarray]:
    answers = [f"{MODEL} {CONTAINER} {row[0].decode()}".encode() for row in text]
    return {"answer": np.array(answers, dtype=object)[:, None]}


def main() -> None:
    # The model to which Triton's port for SageMaker sends invocations.
    os.environ["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"] = "echo"
    config = TritonConfig(allow_sagemaker=True, sagemaker_port=8080)
    with Triton(config=config) as triton:
        triton.bind(
            model_name="echo",
            infer_func=infer,
            inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
            outputs=[Tensor(name="answer", dtype=bytes, shape=(1,))],
            config=ModelConfig(max_batch_size=16),
        )
        triton.serve()


if __name__ == "__main__":
    main()
