"""A backup of a server that is written to all the time, and what comes back of it."""

import threading
from pathlib import Path

from support.cli import run_command
from support.server import Server, eventually

SIZES = (200, 40_000, 300_000)
KEYS = 6


def body(key: str, version: int) -> bytes:
    """All of it says which it is: what is torn or another's would show."""
    line = f"{key} {version:08d}\n".encode()
    return line * (SIZES[version % len(SIZES)] // len(line))


class Writer(threading.Thread):
    """Writes and deletes objects; remembers which version was answered, and which was begun."""

    def __init__(self, server: Server, name: str) -> None:
        super().__init__()
        self._s3 = server.client("s3")
        self.keys = [f"{name}-{number}" for number in range(KEYS)]
        self.answered = dict.fromkeys(self.keys, 0)
        self.begun = dict.fromkeys(self.keys, 0)
        self.stopped = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        version = 0
        try:
            while not self.stopped.is_set():
                version += 1
                key = self.keys[version % KEYS]
                self.begun[key] = version
                if version % 11 == 0:
                    self._s3.delete_object(Bucket="bucket", Key=key)
                self._s3.put_object(Bucket="bucket", Key=key, Body=body(key, version))
                self.answered[key] = version
        except BaseException as error:
            self.fault = error


def test_a_backup_under_load_comes_back_as_it_was(make_server, short_path: Path) -> None:
    server = make_server()
    s3 = server.client("s3")
    s3.create_bucket(Bucket="bucket")
    upload = s3.create_multipart_upload(Bucket="bucket", Key="parts")["UploadId"]
    part = {"Bucket": "bucket", "Key": "parts", "UploadId": upload}
    etag = s3.upload_part(**part, PartNumber=1, Body=b"p" * 2**20)["ETag"]
    writers = [Writer(server, name) for name in "abc"]
    for one in writers:
        one.start()
    try:
        eventually(lambda: all(min(one.answered.values()) > 0 for one in writers))
        before = [dict(one.answered) for one in writers]
        done = run_command("backup", short_path / "backup", "--home", server.home)
        after = [dict(one.begun) for one in writers]
        assert done.status == 0, done.stderr
        eventually(
            lambda: all(
                one.answered[key] > begun[key] + KEYS
                for one, begun in zip(writers, after, strict=True)
                for key in one.keys
            )
        )
        refused = run_command("restore", short_path / "backup", "--home", server.home, "--replace")
        assert (refused.status, "in use by the server" in refused.stderr) == (1, True)
    finally:
        for one in writers:
            one.stopped.set()
        for one in writers:
            one.join()
    assert [one.fault for one in writers] == [None] * 3
    server.stop()
    restored = run_command("restore", short_path / "backup", "--home", server.home, "--replace")
    assert restored.status == 0, restored.stderr
    assert f"sagehen up --home {server.home}" in restored.stdout.replace("\n", "")
    server.start()
    s3 = server.client("s3")
    seen = 0
    for one, least, most in zip(writers, before, after, strict=True):
        for key in one.keys:
            try:
                data = s3.get_object(Bucket="bucket", Key=key)["Body"].read()
            except s3.exceptions.NoSuchKey:
                # Deleted just then, to be written again: at a version of a deletion only.
                assert any(number % 11 == 0 for number in range(least[key], most[key] + 1))
                continue
            version = int(data.splitlines()[0].split()[1])
            assert data == body(key, version)
            assert least[key] <= version <= most[key]
            seen += 1
    assert seen >= len(writers) * KEYS - 3
    s3.complete_multipart_upload(
        **part, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}
    )
    assert s3.get_object(Bucket="bucket", Key="parts")["Body"].read() == b"p" * 2**20
    (aside,) = server.home.glob("before-restore-*")
    assert (aside / "state.db").exists()
