"""What the model server's exit status tells the agent that started it."""

__all__ = ["WILL_NOT_LOAD"]

WILL_NOT_LOAD = 65
"""EX_DATAERR of sysexits.h: the model did not load, for a reason that another start meets again."""
