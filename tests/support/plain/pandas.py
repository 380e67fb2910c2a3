"""In front of the real one: see `support.warm.PLAIN`."""

raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
