"""LitServe, its queue over shared memory and sockets with --fast-queue."""

import argparse

import litserve
from booster import load


class House(litserve.LitAPI):
    def setup(self, device):
        self.model = load()

    def decode_request(self, request):
        return request["row"]

    def predict(self, row):
        return self.model([row])[0]

    def encode_response(self, prediction):
        return {"prediction": float(prediction)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--fast-queue", action="store_true")
    arguments = parser.parse_args()
    server = litserve.LitServer(House(), accelerator="cpu", fast_queue=arguments.fast_queue)
    server.run(host="127.0.0.1", port=arguments.port, generate_client_file=False, log_level="error")
