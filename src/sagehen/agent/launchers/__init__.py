"""The ways of starting a container, one file each."""
