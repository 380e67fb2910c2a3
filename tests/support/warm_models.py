"""To be loaded before processes are forked: they have what most clients of AWS read first."""

import gc

from support.service_models import read_most, read_once

read_once()
read_most()
# What is there stays: each fork would look through all of it for garbage, and so copy it.
gc.collect()
gc.freeze()
