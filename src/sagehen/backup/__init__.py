"""Backups of a home: taken while its server runs, and brought back."""

from sagehen.backup.restore import restore_backup
from sagehen.backup.take import take_backup

__all__ = ["restore_backup", "take_backup"]
