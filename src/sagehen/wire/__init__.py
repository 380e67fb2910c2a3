"""The AWS protocols in both directions, by botocore's service models. No I/O, no SQL."""
