"""Training jobs on this node."""
