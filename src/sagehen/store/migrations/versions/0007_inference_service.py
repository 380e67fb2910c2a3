"""The Async-Inference-Service: services, their jobs, API keys."""

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
