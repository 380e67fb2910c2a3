"""The AWS protocols in both directions, from botocore's service models. No I/O, no SQL."""
