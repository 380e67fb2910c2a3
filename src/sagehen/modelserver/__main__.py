"""`python -m sagehen.modelserver`: reads the environment, serves, ends with the right status."""

import os
import sys

from sagehen.errors import SagehenError
from sagehen.modelserver.environment import read_environment


def main() -> int:
    try:
        environment = read_environment(os.environ)
        # As SageMaker's XGBoost container does; libraries read it when they are loaded.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        from sagehen.modelserver.program import run

        return run(environment)
    except SagehenError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of a framework's must not keep the process.
    os._exit(status)
