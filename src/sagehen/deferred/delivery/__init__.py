"""Notices on their way to subscribers: the outbox is emptied, whatever the receivers do."""
