"""The metrics of training jobs."""

from sagehen.metrics.metric import OWN, Kind, Metric

__all__ = ["TRAINING"]

TRAINING = (
    Metric(
        "TrainingJobs",
        "sagehen_training_jobs",
        Kind.GAUGE,
        "Count",
        "Training jobs that have not ended, by TrainingJobStatus.",
        ("status",),
        OWN,
    ),
    Metric(
        "PendingTrainingJobs",
        "sagehen_training_jobs_pending",
        Kind.GAUGE,
        "Count",
        "Training jobs that wait for room.",
        (),
        OWN,
    ),
    Metric(
        "RunningTrainingJobs",
        "sagehen_training_jobs_running",
        Kind.GAUGE,
        "Count",
        "Training jobs that an agent has, or is to have.",
        (),
        OWN,
    ),
    Metric(
        "TrainingJobRestarts",
        "sagehen_training_job_restarts",
        Kind.COUNTER,
        "Count",
        "Attempts at training jobs that came to nothing and were begun again: Interrupted, where "
        "they were spot jobs, or Restarting.",
        ("cause",),
        OWN,
    ),
)
