"""The public HTTP port: authenticates and routes invocations, relays everything else to control."""
