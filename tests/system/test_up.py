"""Starting and stopping a server, and what can be wrong with either."""

import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from support.cli import Ended, run_command
from support.deploy import Deployer
from support.plain_http import ask
from support.server import SAGEHEN, Server, clean_environment, eventually
from support.traffic import traffic


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command as a user runs it; where a process of its own proves nothing, see `ended`."""
    return subprocess.run(
        [SAGEHEN, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment() | environment,
        check=False,
    )


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """`ended(*arguments, **environment)`: what `sagehen arguments` leaves."""

    def run_here(*arguments: object, **environment: str) -> Ended:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return run_command(*arguments)

    return run_here


def test_env_gives_a_shell_what_it_needs(server):
    printed = run("env", "--home", str(server.home))
    shell = subprocess.run(
        ["sh", "-c", f"{printed.stdout}\nenv"], capture_output=True, text=True, check=True
    )
    variables = dict(line.split("=", 1) for line in shell.stdout.splitlines() if "=" in line)
    assert variables["AWS_ENDPOINT_URL"] == server.url
    assert variables["AWS_REGION"] == variables["AWS_DEFAULT_REGION"] == "us-east-1"
    assert variables["AWS_ACCESS_KEY_ID"] == server.env["AWS_ACCESS_KEY_ID"]
    assert variables["AWS_SECRET_ACCESS_KEY"] == server.env["AWS_SECRET_ACCESS_KEY"]


def test_keys_are_readable_by_their_owner_only(server):
    mode = stat.S_IMODE((server.home / "credentials.json").stat().st_mode)
    assert mode == 0o600
    assert stat.S_IMODE(server.home.stat().st_mode) == 0o700


def test_nobody_else_reads_anything_of_a_home_that_was_open(short_path):
    home = short_path / "home"
    home.mkdir()
    home.chmod(0o755)
    (home / "state.db").touch()
    (home / "state.db").chmod(0o644)
    before = os.umask(0o022)
    server = Server(home, {})
    try:
        server.start()
        s3 = server.client("s3")
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="k", Body=b"TOP-SECRET-OBJECT")
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        found = modes_below(home)
        assert {"state.db", "state.db-wal", "state.db-shm"} <= {path.name for path in found}
        assert [path for path, mode in found.items() if mode & 0o077] == []
        if os.geteuid() == 0:
            short_path.chmod(0o755)
            home.chmod(0o755)  # The files by themselves.
            for name in ("state.db", "state.db-wal", "state.db-shm", "run/routes.json"):
                looked = subprocess.run(
                    ["cat", home / name], user="nobody", capture_output=True, check=False
                )
                assert looked.returncode == 1
                assert b"Permission denied" in looked.stderr
    finally:
        os.umask(before)
        server.stop()


def modes_below(home: Path) -> dict[Path, int]:
    """Of files and folders; a server that runs may take some away while they are listed."""
    modes = {}
    for folder, folders, files in os.walk(home):
        for path in (Path(folder, name) for name in (*folders, *files)):
            with suppress(FileNotFoundError):
                mode = path.stat().st_mode
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                    modes[path] = mode
    return modes


def test_health_is_200_when_ready(server):
    assert server.get("/_sagehen/health")


def test_internal_paths_are_closed_to_the_outside(server):
    assert ask(f"{server.url}/_sagehen/internal/gateway", b"{}").status == 404


def test_second_up_on_the_same_home_is_refused(server):
    second = run("up", "--home", str(server.home), "--port", "0")
    assert second.returncode == 1
    assert f"in use by the server with process id {server.process.pid}" in second.stderr
    assert server.get("/_sagehen/health")


def test_taken_port_is_said(server, short_path, ended):
    port = server.url.rpartition(":")[2]
    second = ended("up", "--home", str(short_path / "home"), "--port", port)
    assert second.status == 1
    assert f"Cannot listen on 127.0.0.1 port {port}" in second.stderr
    assert "--port" in second.stderr


def test_port_of_another_program_is_said(short_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        refused = run("up", "--home", str(short_path / "home"), "--port", port)
    assert refused.returncode == 1
    assert "Address already in use" in refused.stderr


def test_home_that_cannot_be_written_is_said(short_path, ended):
    (short_path / "file").write_text("")
    refused = ended("up", "--home", str(short_path / "file" / "home"), "--port", "0")
    assert refused.status == 1
    assert "cannot be used: Not a directory" in refused.stderr


def test_home_with_too_long_a_path_is_said(short_path, ended):
    refused = ended("up", "--home", str(short_path / ("x" * 80)), "--port", "0")
    assert refused.status == 1
    assert "Choose a shorter one" in refused.stderr


def test_unknown_setting_is_said(short_path, ended):
    home = short_path / "home"
    home.mkdir()
    (home / "sagehen.toml").write_text("prot = 9000\n")
    refused = ended("up", "--home", str(home))
    assert refused.status == 1
    assert "prot is not a setting" in refused.stderr


def test_unknown_variable_is_said(short_path, ended):
    refused = ended("up", "--home", str(short_path / "home"), SAGEHEN_PROT="9000")
    assert refused.status == 1
    assert "SAGEHEN_PROT is not a setting. Did you mean SAGEHEN_PORT?" in refused.stderr


@pytest.mark.parametrize("option", ["colour", "allow_http"])
def test_unknown_option_of_the_object_store_is_said(short_path, option, ended):
    refused = ended(
        "up",
        "--home",
        str(short_path / "home"),
        SAGEHEN_OBJECT_STORE_URL="s3://bucket",
        SAGEHEN_OBJECT_STORE_OPTIONS=json.dumps({option: "red"}),
    )
    assert refused.status == 1
    assert option in refused.stderr
    assert "Traceback" not in refused.stderr


def test_errors_are_shown_as_they_are(short_path, ended):
    (short_path / "sagehen.toml").write_text('region = "[/red]"\nport = "[x]"\n')
    refused = ended("env", "--home", str(short_path))
    assert refused.status == 1
    assert "[/red]" in refused.stderr
    assert "[x]" in refused.stderr


def test_host_that_does_not_exist_is_said(short_path, ended):
    refused = ended("up", "--home", str(short_path / "home"), "--port", "0", "--host", "a.invalid")
    assert refused.status == 1
    assert "Cannot listen on a.invalid port 0" in refused.stderr
    assert "Unknown error" not in refused.stderr


def test_address_that_a_killed_server_left_is_not_told_while_the_next_one_starts(short_path, ended):
    home = short_path / "home"
    (home / "run").mkdir(parents=True)
    (home / "run" / "address").write_text("http://127.0.0.1:1")
    # A state of its own that cannot be opened: the start gets as far as that.
    (home / "state.db").mkdir()
    assert ended("up", "--home", str(home), "--port", "0").status == 1
    assert not (home / "run" / "address").exists()


@dataclass(frozen=True)
class Started:
    """A server started as a user does, in a home and with settings of odd names."""

    folder: Path
    process: "subprocess.Popen[str]"
    variables: dict[str, str]
    """What a shell has after the line that `up` says to run in another terminal."""

    @property
    def home(self) -> Path:
        return self.folder / "it's [b]mine?"


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    with tempfile.TemporaryDirectory(prefix="sgh-") as name:
        new = Started(folder=Path(name), process=None, variables={})
        settings = new.folder / "it's [b]theirs.toml"
        settings.write_text('region = "eu-west-1"\n')
        command = [SAGEHEN, "up", "--port", "0", "--home", str(new.home), "--config", str(settings)]
        clean = clean_environment()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean) as process:
            try:
                variables = variables_of_a_shell_told_by(process, clean)
                yield replace(new, process=process, variables=variables)
            finally:
                process.terminate()


def variables_of_a_shell_told_by(
    process: "subprocess.Popen[str]", environment: dict[str, str]
) -> dict[str, str]:
    lines = iter(process.stdout.readline, "")
    hint = next(line for line in lines if "in another terminal" in line)
    line = hint[hint.index("eval") : hint.rindex(". Ctrl-C")]
    path = f"{Path(SAGEHEN).parent}:{os.environ['PATH']}"
    shell = subprocess.run(
        ["sh", "-c", f"{line}; env"],
        capture_output=True,
        text=True,
        env=environment | {"PATH": path},
        check=True,
    )
    assert shell.stderr == ""
    return dict(one.split("=", 1) for one in shell.stdout.splitlines() if "=" in one)


def test_home_of_any_name_is_kept_to(started):
    assert started.variables["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
    assert (started.home / "state.db").exists()
    homes = [path.name for path in started.folder.iterdir() if path.is_dir()]
    assert homes == [started.home.name]


def test_another_file_of_settings_is_every_process_s(started):
    variables = started.variables
    assert variables["AWS_REGION"] == "eu-west-1"
    client = boto3.client(
        "sagemaker",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_REGION"],
    )
    assert client.list_models()["Models"] == []


def test_stop_ends_everything(started):
    roles = Server(started.home, {}, started.process).pids()
    assert set(roles) == {"gateway", "control", "agent"}
    stopped = run("stop", "--home", str(started.home))
    assert (stopped.returncode, stopped.stdout.splitlines()[-1]) == (0, "Stopped.")
    assert started.process.wait(10) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in roles.values())
    assert not (started.home / "run" / "address").exists()
    said = "".join(log.read_text() for log in (started.home / "logs").glob("*.log"))
    assert "Assertion" not in said


def test_a_server_whose_home_is_deleted_stops_and_says_so(short_path):
    home = short_path / "home"
    command = [SAGEHEN, "up", "--port", "0", "--home", str(home)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        try:
            next(line for line in iter(process.stdout.readline, "") if "is ready at" in line)
            roles = Server(home, {}, process).pids()
            shutil.rmtree(home, ignore_errors=True)
            told, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1
    assert f"The home {home} is gone. Stopping." in told.replace("\n", " ")
    assert "was deleted or replaced while the server ran" in error.replace("\n", " ")
    assert "Traceback" not in error
    assert not any(Path(f"/proc/{pid}").exists() for pid in roles.values())


def test_settings_are_read_again_while_calls_go_on(make_server, ended):
    server = make_server()
    assert Deployer(server).endpoint("steady")["EndpointStatus"] == "InService"
    settings = server.home / "sagehen.toml"
    sns, before = server.client("sns"), server.pids()
    printed = server.home.parent / "up.log"
    with traffic(server.client("sagemaker-runtime"), "steady") as seen:
        settings.write_text("max_topics = 1\nmax_connections = 99\n")
        assert ended("reload", "--home", server.home).status == 0
        eventually(lambda: "Take effect now: max_topics." in printed.read_text())
        assert "only when the server starts again: max_connections." in printed.read_text()

        def is_limited():
            try:
                for name in ("a", "b"):
                    sns.create_topic(Name=name)
            except ClientError as error:
                return error.response["Error"]["Code"] == "TopicLimitExceeded"
            return False

        eventually(is_limited)
        settings.write_text("max_topics = many\n")
        assert ended("reload", "--home", server.home).status == 1, "the command reads them, too"
        seen.goes_on(50)
    assert seen.errors == []
    after = server.pids()
    assert before.pop("control") != after.pop("control")
    assert before == after


def test_env_before_any_start_says_what_to_do(short_path, ended):
    refused = ended("env", "--home", str(short_path))
    assert refused.status == 1
    assert "sagehen up" in refused.stderr


def test_demo_without_its_libraries_says_how_to_get_them(short_path):
    (short_path / "xgboost.py").write_text("raise ModuleNotFoundError(name='xgboost')\n")
    refused = run("demo", "--home", str(short_path / "home"), PYTHONPATH=str(short_path))
    assert refused.returncode == 1
    assert "pip install 'xgboost-cpu>=3.0.5,<3.1' 'scikit-learn>=1.5,<1.8'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_status_without_a_server_says_what_to_do(short_path, ended):
    refused = ended("status", "--home", str(short_path))
    assert refused.status == 1
    assert "No server runs" in refused.stderr


def test_status_and_logs_show_an_endpoint(server, deploy, ended):
    chatty = (
        "def model_fn(d):\n    print('hello from the model', flush=True)\n    return 1\n"
        "def predict_fn(data, model):\n    return data\n"
    )
    assert deploy.endpoint("chatty", chatty)["EndpointStatus"] == "InService"
    shown = run("status", "--home", str(server.home))
    assert shown.returncode == 0
    assert "chatty" in shown.stdout
    assert "InService" in shown.stdout
    one = json.loads(ended("status", "chatty", "--json", "--home", str(server.home)).stdout)
    assert [endpoint["name"] for endpoint in one["endpoints"]] == ["chatty"]
    assert completed("status", "--home", str(server.home), "chat") == ["chatty"]
    assert completed("--home", str(server.home), "logs", "chat") == ["chatty"]
    with pytest.raises(server.client("sagemaker-runtime").exceptions.ModelError):
        deploy.invoke("chatty", "no JSON")

    def has_errors():
        shown = ended("status", "chatty", "--home", str(server.home)).stdout
        return "chatty, variant AllTraffic: the last error, " in shown and "line 1" in shown

    eventually(has_errors)
    logs = ended("logs", "chatty", "--home", str(server.home))
    assert re.search(r"^\d{4}-\d\d-\d\dT[\d:.]+Z .*hello from the model$", logs.stdout, re.M)
    missing = ended("logs", "nothing", "--home", str(server.home))
    assert missing.status == 1
    assert "no logs of an endpoint, training or transform job nothing" in missing.stderr


def test_status_says_what_a_start_waits_for(server, deploy, gates, ended):
    waits = (
        "import time\nfrom pathlib import Path\n"
        f"def model_fn(d):\n    while not Path({str(gates / 'go')!r}).exists(): time.sleep(0.01)\n"
    )
    deploy.config("starts-late", waits + "def predict_fn(data, model): return data\n")
    deploy.sagemaker.create_endpoint(EndpointName="starts-late", EndpointConfigName="starts-late")
    step = re.compile(
        r"^starts-late, instance i-\w+: its containers start, and have not answered /ping, for ",
        re.M,
    )
    eventually(lambda: step.search(ended("status", "--home", str(server.home)).stdout) is not None)
    (gates / "go").touch()
    assert deploy.settled("starts-late")["EndpointStatus"] == "InService"
    assert step.search(ended("status", "--home", str(server.home)).stdout) is None


def test_nothing_is_completed_without_a_server(short_path):
    assert completed("status", "--home", str(short_path), "") == []


def completed(*words: str) -> list[str]:
    """What bash offers at the Tab key."""
    asked = {"COMP_WORDS": shlex.join(["sagehen", *words]), "COMP_CWORD": str(len(words))}
    offered = run(**asked, _SAGEHEN_COMPLETE="complete_bash")
    assert (offered.returncode, offered.stderr) == (0, "")
    return offered.stdout.split()


def test_status_is_json_for_programs(server):
    assert "endpoints" in json.loads(server.get("/_sagehen/status"))
