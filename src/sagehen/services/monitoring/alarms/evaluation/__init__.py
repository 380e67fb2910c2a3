"""From datapoints to the state of a metric alarm; pure functions."""
