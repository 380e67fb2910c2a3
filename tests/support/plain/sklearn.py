"""In front of the real one for scripts whose xgboost can do without: that takes two seconds less."""

raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
