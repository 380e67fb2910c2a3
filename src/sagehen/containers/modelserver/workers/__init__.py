"""Worker processes, which run the user's code, and their connection to the server."""
