"""MLServer: one tensor in, one out."""

from booster import load
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class House(MLModel):
    async def load(self) -> bool:
        self.model = load()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        predictions = self.model(NumpyCodec.decode_input(payload.inputs[0]))
        output = NumpyCodec.encode_output("prediction", predictions.reshape(-1, 1))
        return InferenceResponse(model_name=self.name, outputs=[output])
