"""Topics, queues, events, and the delivery of notifications."""

from pydantic import Field, SecretStr

from sagehen.base.settings.section import Section

__all__ = ["DeliverySettings", "MailSettings", "MessagingSettings"]


class MessagingSettings(Section):
    """Topics, queues and events."""

    max_topics: int = Field(10_000, gt=0, description="Topics; more are refused.")
    max_topic_subscriptions: int = Field(
        1000, gt=0, description="Subscriptions of one topic; more are refused."
    )
    max_queues: int = Field(10_000, gt=0, description="SQS queues; more are refused.")
    max_long_polls: int = Field(
        1000, gt=0, description="ReceiveMessage calls that wait at once; more are throttled."
    )
    max_event_rules: int = Field(
        300,
        gt=0,
        description="Rules of EventBridge; more are refused. Each event is compared "
        "with all of them.",
    )


class DeliverySettings(Section):
    """Delivery of notifications."""

    delivery_timeout_seconds: float = Field(
        15, gt=0, description="How long a subscriber may take to accept a notification."
    )
    max_deliveries: int = Field(
        1024, gt=0, description="Notifications that are delivered at once; more wait."
    )
    max_receiver_deliveries: int = Field(
        8,
        gt=0,
        description="Notifications that are delivered to one receiver (a host and port) at once.",
    )
    max_waiting_deliveries: int = Field(
        1_000_000,
        gt=0,
        description="Notifications that wait for one subscriber; beyond it, those that would be "
        "tried last are dropped.",
    )


class MailSettings(Section):
    """Mail."""

    smtp_host: str | None = Field(
        None, description="The mail server for notifications by e-mail; without it none are sent."
    )
    smtp_port: int = Field(25, ge=1, le=65535, description="The mail server's port.")
    smtp_security: str = Field(
        "none",
        pattern=r"^(none|starttls|tls)$",
        description="How the connection to the mail server is encrypted: none, starttls or tls.",
    )
    smtp_username: str | None = Field(None, description="The user name at the mail server.")
    smtp_password: SecretStr | None = Field(None, description="The password at the mail server.")
    mail_sender: str = Field(
        "sagehen@localhost", description="The sender of notifications by e-mail."
    )
