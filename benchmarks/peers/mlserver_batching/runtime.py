"""MLServer with adaptive batching: one tensor in, one out."""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse
from predictors import asks_texts, load


class Model(MLModel):
    async def load(self) -> bool:
        self.model = load()
        self.codec = StringCodec if asks_texts() else NumpyCodec
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        predictions = self.model(self.codec.decode_input(payload.inputs[0]))
        rows = np.asarray(predictions, dtype=np.float32).reshape(len(predictions), -1)
        output = NumpyCodec.encode_output("prediction", rows)
        return InferenceResponse(model_name=self.name, outputs=[output])
