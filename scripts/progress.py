"""Runs a command that prints much, and shows one line of what it does, with the seconds so far.

    python3 scripts/progress.py "Installing the packages" pip install ...

At a terminal the line is overwritten; elsewhere a new one comes every five seconds. If the command
fails, all that it printed is shown.
"""

import shutil
import subprocess
import sys
import threading
import time

EVERY_SECONDS = 5.0


def main(title, command):
    print(f"{title} ...", flush=True)
    began = time.monotonic()
    printed = []
    ended = threading.Event()
    shower = threading.Thread(target=show, args=(printed, began, ended))
    shower.start()
    try:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            for line in process.stdout:
                printed.append(line)
    finally:
        ended.set()
        shower.join()
    if process.returncode:
        sys.stdout.writelines(printed)
        print(f"This failed after {time.monotonic() - began:.0f} s: {' '.join(command)}")
    else:
        print(f"  done in {time.monotonic() - began:.0f} s")
    return process.returncode


def show(printed, began, ended):
    terminal = sys.stdout.isatty()
    while not ended.wait(0.2 if terminal else EVERY_SECONDS):
        steps = (line.strip() for line in reversed(printed))
        latest = next((step for step in steps if step and not step.startswith("WARNING")), "")
        text = f"  {time.monotonic() - began:3.0f} s  {latest}"
        if terminal:
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write("\r" + text[:width].ljust(width))
        else:
            sys.stdout.write(text[:100] + "\n")
        sys.stdout.flush()
    if terminal:
        sys.stdout.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
