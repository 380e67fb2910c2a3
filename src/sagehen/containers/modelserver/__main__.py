"""Starts the model server: `python -m sagehen.containers.modelserver`."""

import os
import sys

from sagehen.base.errors import SagehenError
from sagehen.containers.modelserver.environment import read_environment


def main() -> int:
    try:
        environment = read_environment(os.environ)
        # 1, as in SageMaker's XGBoost container. Libraries read the variable when they are loaded.
        os.environ.setdefault("OMP_NUM_THREADS", str(environment.most_threads))
        from sagehen.containers.modelserver.program import run

        return run(environment)
    except SagehenError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of a framework must not keep the process alive.
    os._exit(status)
