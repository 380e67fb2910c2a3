"""Installs the wheel with its dependencies for each Python that is found, and runs it.

    make test-pythons          # or: python scripts/test_pythons.py 3.12 3.13

Each gets a virtual environment with the README's extras, runs the demo (XGBoost, hundreds of
checks), and the README's own example against a server (scikit-learn).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
START_SECONDS = 60


def main(versions):
    interpreters = {version: python for version in versions if (python := interpreter(version))}
    missing = [version for version in versions if version not in interpreters]
    print(f"Found {', '.join(interpreters) or 'none'}; not found: {', '.join(missing) or 'none'}")
    failed = []
    with tempfile.TemporaryDirectory(prefix="sgh-") as name:
        folder = Path(name)
        build = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            folder,
            ROOT,
        ]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        wheel = next(folder.glob("*.whl"))
        for version, python in interpreters.items():
            began = time.monotonic()
            try:
                try_one(python, wheel, folder / version)
            except (subprocess.CalledProcessError, RuntimeError) as error:
                failed.append(version)
                print(f"{version}: FAILED: {error}\n{getattr(error, 'stdout', None) or ''}")
            else:
                print(f"{version}: passed in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed or not interpreters else 0


def interpreter(version):
    """The Python of that version on the PATH or among pyenv's, if it runs."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [*sorted(pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
    for python in filter(None, candidates):
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(python)
    return None


def try_one(python, wheel, folder):
    folder.mkdir()
    run([python, "-m", "venv", folder / "venv"])
    scripts = folder / "venv" / "bin"
    run([scripts / "pip", "install", "--quiet", f"{wheel}[xgboost,sklearn]"])
    print(
        run([scripts / "python", "--version"]).strip(),
        run([scripts / "sagehen", "--version"]).strip(),
    )
    run([scripts / "sagehen", "demo"])
    home = folder / "home"
    with subprocess.Popen(
        [scripts / "sagehen", "up", "--port", "0", "--home", home], stdout=subprocess.DEVNULL
    ) as server:
        try:
            wait_for(home / "run" / "address", server)
            code = (
                f'eval "$({scripts}/sagehen env --home {home})" && '
                f"{scripts}/python {ROOT}/examples/first_endpoint.py"
            )
            answer = run(["bash", "-c", code], cwd=folder)
            if answer != "b'[0]'\n":
                raise RuntimeError(f"The README's example printed {answer!r}.")
        finally:
            server.terminate()


def run(command, **options):
    done = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    return done.stdout


def wait_for(path, server):
    deadline = time.monotonic() + START_SECONDS
    while not path.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("`sagehen up` did not become ready.")
        time.sleep(0.1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or VERSIONS))
