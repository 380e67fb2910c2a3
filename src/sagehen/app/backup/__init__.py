"""Backups of a home: taken while its server runs, and brought back."""

from sagehen.app.backup.restore import restore_backup
from sagehen.app.backup.take import take_backup

__all__ = ["restore_backup", "take_backup"]
