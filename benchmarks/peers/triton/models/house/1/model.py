"""Triton's Python backend: all requests of a batch, of one row each, are predicted in one call."""

import numpy as np
import triton_python_backend_utils as triton
from booster import load


class TritonPythonModel:
    def initialize(self, args):
        self.model = load()

    def execute(self, requests):
        rows = [triton.get_input_tensor_by_name(request, "row").as_numpy() for request in requests]
        predictions = self.model(rows[0] if len(rows) == 1 else np.concatenate(rows))
        return [answer(prediction) for prediction in predictions.reshape(-1, 1, 1)]


def answer(prediction):
    return triton.InferenceResponse([triton.Tensor("prediction", prediction)])
