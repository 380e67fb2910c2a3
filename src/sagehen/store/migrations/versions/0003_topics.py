"""Topics, subscriptions, deliveries, and the queues that they go to."""

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
