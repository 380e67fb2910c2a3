"""The verbs of `sagehen` beyond running it: each file has the options of some, and hands on."""
