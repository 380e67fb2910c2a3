"""Works on asynchronous requests: from the queue to a container, and its answer to an object."""
