"""The metrics of the Async-Inference-Service."""

from sagehen.metrics.metric import OWN, Kind, Metric

__all__ = ["INFERENCE_SERVICE"]

INFERENCE_SERVICE = (
    Metric(
        "InferenceRequests",
        "sagehen_inference_requests",
        Kind.COUNTER,
        "Count",
        "Requests to the Async-Inference-Service, by what became of them: Accepted, Queued, "
        "Malformed, Unsupported, Full, KeyReused, Failed, Forbidden.",
        ("stage", "type", "outcome"),
        OWN,
    ),
)
