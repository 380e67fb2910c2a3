"""Entry points of the server's processes."""
