"""Worker processes for user code, and their connection to the server."""
