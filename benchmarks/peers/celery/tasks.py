"""The worker's side: a task is acknowledged when its result is kept, and again after a crash."""

from celery import Celery
from queue_client import BROKER, RESULTS

app = Celery("tasks", broker=BROKER, backend=RESULTS)
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)


@app.task(name="echo")
def echo(text: str) -> str:
    return text
