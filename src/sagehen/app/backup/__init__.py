"""Takes and restores backups of a home."""

from sagehen.app.backup.restore import restore_backup
from sagehen.app.backup.take import take_backup

__all__ = ["restore_backup", "take_backup"]
