"""What it is about, as pure data: records, states, names, instance types, messages."""
