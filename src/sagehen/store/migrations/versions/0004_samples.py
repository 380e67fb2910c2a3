"""What CloudWatch is asked for: samples of metrics, by the minute."""

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
