"""The processes that run the user's own code, from both ends of the socket between."""
