"""The commands of `sagehen`."""
