"""To be loaded before processes are forked: they have what most clients of AWS read and
check first."""

import gc

from support.sagemaker_sdk import check_schema_once
from support.service_models import read_most, read_once

read_once()
read_most()
check_schema_once()
# What is there stays: each fork would look through all of it for garbage, and so copy it.
gc.collect()
gc.freeze()
