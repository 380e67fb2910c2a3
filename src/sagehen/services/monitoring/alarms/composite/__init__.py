"""Composite alarms: their rules, their evaluation, and the suppression of their actions."""
