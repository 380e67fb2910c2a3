"""The hot path: server, routes, choose, relay."""
