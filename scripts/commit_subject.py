"""Refuses a commit message whose subject is longer than 72 characters; a commit-msg hook.

python3 scripts/commit_subject.py .git/COMMIT_EDITMSG
"""

import sys
from pathlib import Path

LONGEST_SUBJECT = 72


def fault_of(message: str) -> str | None:
    """Returns what is wrong with the message and what to do, if anything."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject, *rest = lines or [""]
    if not subject.strip():
        return "The subject is empty: say in the first line what is different now."
    if len(subject) > LONGEST_SUBJECT:
        return (
            f"The subject has {len(subject)} characters, and at most {LONGEST_SUBJECT} are "
            "allowed: say what changed, and move the story into the body."
        )
    if rest and rest[0].strip():
        return "The second line is not empty: leave a blank line between subject and body."
    return None


def main() -> int:
    fault = fault_of(Path(sys.argv[1]).read_text())
    if fault is not None:
        print(fault, file=sys.stderr)
    return 0 if fault is None else 1


if __name__ == "__main__":
    sys.exit(main())
