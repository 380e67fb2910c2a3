"""What is counted, by the minute: recorded in memory, sampled, and written to the store."""
