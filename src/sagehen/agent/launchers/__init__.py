"""Launchers: how containers are started as processes."""
