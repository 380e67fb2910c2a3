"""To be loaded before processes are forked: they have what most clients of AWS read first."""

from support.service_models import read_most, read_once

read_once()
read_most()
