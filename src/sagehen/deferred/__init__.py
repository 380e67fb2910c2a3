"""Work that outlives its request: asynchronous invocations, notices."""
