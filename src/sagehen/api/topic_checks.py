"""Whether an asynchronous endpoint's topics are there: each gets SageMaker's TestNotification."""

import logging
import uuid

from sqlalchemy import Connection

from sagehen.api.call import Call
from sagehen.domain.notices import Notice
from sagehen.domain.routes import AsyncPlan
from sagehen.store import topics

__all__ = ["try_topics"]

log = logging.getLogger(__name__)

_MESSAGE = '{"eventVersion":"1.0","eventSource":"aws:sagemaker","eventName":"TestNotification"}'


def try_topics(call: Call, connection: Connection, plan: AsyncPlan | None) -> str | None:
    """Publish a TestNotification to each topic of `plan`; why that is the end of the deployment.

    None where all are there, or where `topics_required` is off: then a line in the log tells of
    those that are missing.
    """
    wanted = (plan.success_topic, plan.error_topic) if plan else ()
    missing = [
        arn
        for arn in dict.fromkeys(filter(None, wanted))
        if not topics.publish(connection, _notice(arn, call.clock.now()))
    ]
    if not missing:
        return None
    here = call.arns.sns("")
    strange = not all(arn.startswith(here) for arn in missing)
    reason = (
        f"The TestNotification could not be published, for there is no topic {', '.join(missing)}. "
        "Create it with CreateTopic, then try again."
    ) + (f" The topics of this server are {here}NAME." if strange else "")
    if call.settings.topics_required:
        return reason
    log.warning("%s", reason, extra={"action": "try_topics", "id": call.request_id})
    return None


def _notice(topic_arn: str, now: float) -> Notice:
    return Notice(
        message_id=str(uuid.uuid4()), topic_arn=topic_arn, message=_MESSAGE, published_at=now
    )
