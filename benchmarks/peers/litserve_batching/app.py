"""LitServe with batches of up to 64, which it waits for up to 5 ms."""

import sys

import litserve
from predictors import load


class Model(litserve.LitAPI):
    def setup(self, device):
        self.model = load()

    def decode_request(self, request):
        return request["question"]

    def batch(self, questions):
        return questions

    def unbatch(self, predictions):
        return list(predictions)

    def predict(self, questions):
        return self.model(questions)

    def encode_response(self, prediction):
        return {"prediction": prediction.tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(Model(max_batch_size=64, batch_timeout=0.005), accelerator="cpu")
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="error"
    )
