"""The AWS CLI's `s3` commands, as people type them."""

import json
import os
import subprocess
import sys
from urllib.request import urlopen

import pytest


def test_the_command_itself(aws):
    command = [sys.executable, "-m", "awscli", "s3", "ls", "s3://no-such-bucket-here"]
    done = subprocess.run(command, env=aws.env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "(NoSuchBucket)" in done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "sub" / "b c.txt").write_text("b")
    (tmp_path / "large.bin").write_bytes(bytes(9 * 2**20))
    for path in tmp_path.rglob("*"):
        # S3 tells whole seconds, so to the CLI a file of this very second looks changed again.
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return tmp_path


def test_a_folder_there_and_back(cli, folder, tmp_path_factory):
    assert "make_bucket: cli-bucket" in cli("s3 mb s3://cli-bucket")
    assert cli("s3 sync", folder, "s3://cli-bucket/in").count("upload:") == 3
    assert cli("s3 sync", folder, "s3://cli-bucket/in") == "", "nothing has changed"
    listed = cli("s3 ls s3://cli-bucket --recursive --human-readable --summarize")
    assert "9.0 MiB in/large.bin" in listed
    assert "Total Objects: 3" in listed
    assert "PRE in/" in cli("s3 ls s3://cli-bucket")
    cli("s3 cp s3://cli-bucket/in/large.bin s3://cli-bucket/copy.bin")
    cli("s3 mv s3://cli-bucket/in/a.txt s3://cli-bucket/moved.txt")
    back = tmp_path_factory.mktemp("back")
    cli("s3 cp s3://cli-bucket", back, "--recursive")
    assert (back / "in" / "sub" / "b c.txt").read_text() == "b"
    assert (back / "moved.txt").read_text() == "a"
    assert (back / "copy.bin").stat().st_size == 9 * 2**20
    with urlopen(cli("s3 presign s3://cli-bucket/moved.txt").strip()) as answer:
        assert answer.read() == b"a"
    assert cli("s3 rm s3://cli-bucket/in --recursive").count("delete:") == 2
    assert "remove_bucket: cli-bucket" in cli("s3 rb s3://cli-bucket --force")
    assert "cli-bucket" not in cli("s3 ls")


def test_what_deploy_scripts_set_in_passing(cli):
    cli("s3api create-bucket --bucket cli-settings --object-ownership BucketOwnerPreferred")
    bucket = "--bucket cli-settings"
    blocked = "BlockPublicAcls=true,IgnorePublicAcls=true"
    cli(f"s3api put-public-access-block {bucket} --public-access-block-configuration {blocked}")
    told = cli.json(f"s3api get-public-access-block {bucket}")
    assert told["PublicAccessBlockConfiguration"]["RestrictPublicBuckets"] is False
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    by_default = "--server-side-encryption-configuration"
    cli(f"s3api put-bucket-encryption {bucket} {by_default}", json.dumps(rules))
    assert "AES256" in cli(f"s3api get-bucket-encryption {bucket}")
    cli(f"s3api put-bucket-tagging {bucket} --tagging TagSet=[{{Key=team,Value=ml}}]")
    assert cli.json(f"s3api get-bucket-tagging {bucket}")["TagSet"][0]["Value"] == "ml"
    cli(f"s3api put-bucket-versioning {bucket} --versioning-configuration Status=Suspended")
    assert cli.json(f"s3api get-bucket-versioning {bucket}")["Status"] == "Suspended"
    assert "BucketOwnerPreferred" in cli(f"s3api get-bucket-ownership-controls {bucket}")
