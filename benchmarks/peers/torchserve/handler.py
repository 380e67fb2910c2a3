"""TorchServe: a batch of CSV rows in, a text for each out."""

from booster import load


class House:
    def initialize(self, context):
        self.model = load()

    def handle(self, requests, context):
        texts = [request["body"] for request in requests]
        rows = [(text if isinstance(text, str) else text.decode()).split(",") for text in texts]
        return [str(prediction) for prediction in self.model(rows)]
