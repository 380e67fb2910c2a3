"""Measures by the minute: records in memory, samples, and writes to the store."""
