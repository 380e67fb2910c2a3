"""Jobs of real processes, in folders such as the agent's."""

import importlib.util
import io
import json
import os
import signal
import sys
import tarfile
from pathlib import Path

import pytest

from sagehen.base.own_python import make_own_python, own_python
from support import wheels
from support.fixtures.scriptrunner import RESOURCES
from support.wheels import make_wheel
from unit.containers.python_envs import test_environments as projects


def test_a_script_gets_its_arguments_variables_and_folder(job):
    job.script(
        "train.py",
        "import json, os, sys, beside\n"
        "print(json.dumps([sys.argv, os.getcwd(), os.environ['SM_MODEL_DIR'],"
        " os.environ['SM_HP_EPOCHS'], sys.executable, os.environ['MINE']]))\n",
    )
    (job.base / "code" / "beside.py").write_text("")
    job.parameters |= {"epochs": "3", "name": '"two words"'}
    job.environ["MINE"] = "yes"
    status, out, errors = job.run()
    assert (status, job.failure) == (0, None)
    assert json.loads(out) == [
        ["train.py", "--epochs", "3", "--name", "two words"],
        str(job.base / "code"),
        str(job.base / "model"),
        "3",
        sys.executable,
        "yes",
    ]
    assert "train.py --epochs 3 --name two words" in errors


def test_its_log_level_is_kept_to(job):
    job.script("train.py", "")
    job.parameters["sagemaker_container_log_level"] = "30"
    assert job.run() == (0, "", "")


@pytest.mark.parametrize("shebang", ["#!/bin/bash\n", ""])
def test_a_shell_script_needs_no_mode_and_no_first_line(job, shebang):
    job.script("run.sh", f'{shebang}[[ $1 == --epochs ]] && echo "$@"\n')
    job.parameters["epochs"] = "3"
    assert job.run()[:2] == (0, "--epochs 3\n")


def test_any_other_program_is_executed(job):
    job.script("program", '#!/bin/sh\necho "$@"\n')
    job.parameters["a"] = "1"
    assert job.run()[:2] == (0, "-a 1\n")


def test_a_failure_is_told_and_the_status_passed_on(job):
    job.script(
        "train.py", "import sys\ntry:\n  {}['k']\nexcept KeyError:\n  raise ValueError('no')\n"
    )
    status, _, errors = job.run()
    assert status == 1
    assert "Traceback" in errors
    assert job.failure == (
        'ExecuteUserScriptError:\nExitCode 1\nErrorMessage "ValueError: no (train.py, line 5)"\n'
        f'Command "{sys.executable} train.py"'
    )
    job.script("exit.py", "raise SystemExit(42)")
    assert job.run()[0] == 42


def test_what_the_script_says_of_its_failure_itself_is_kept(job):
    job.script("train.py", "open('../output/failure', 'w').write('mine'); raise SystemExit(3)")
    assert job.run()[0] == 3
    assert job.failure == "mine"


def test_a_script_that_is_killed_is_told_so(job):
    job.script("train.py", "import os; os.kill(os.getpid(), 9)")
    assert job.run()[0] == 137
    assert "ExitCode 137" in job.failure


def test_what_a_script_leaves_running_is_not_waited_for(job):
    job.script(
        "train.py",
        "import subprocess\nprint(subprocess.Popen(['sleep', '60']).pid, flush=True)\n",
    )
    with job.start() as process:
        left = int(process.stdout.readline())
        try:
            assert process.wait(120) == 0
        finally:
            os.kill(left, signal.SIGKILL)  # It holds the outputs open.


TERMINATED = {
    "train.py": "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
    "print('ready', flush=True)\ntime.sleep(60)\n",
    # A shell passes no signal on, and does not wait for what got one.
    "run.sh": "python3 slow.py\n",
}
SLOW = (
    "import os, signal, sys, time\n"
    # Not by print(), which it may have come into.
    "def end(*_):\n  time.sleep(0.3); os.write(1, b'saved\\n'); os._exit(0)\n"
    "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(60)\n"
)


@pytest.mark.parametrize("name", TERMINATED)
def test_sigterm_is_passed_on_and_its_work_is_waited_for(job, name):
    (job.base / "code" / "slow.py").write_text(SLOW)
    job.script(name, TERMINATED[name])
    process = job.start()
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert job.failure is None  # It did as it was told.
    if name == "train.py":
        assert process.returncode == 7
    else:
        assert out == "saved\n"
        assert process.returncode == 128 + signal.SIGTERM


def test_requirements_are_installed_for_the_script_and_its_programs(job, tmp_path):
    make_wheel(tmp_path / "wheels", "shade", "1.0")
    job.environ |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "SAGEHEN_ENVIRONMENTS": str(tmp_path / "environments"),
    }
    (job.base / "code" / "requirements.txt").write_text("shade\n")
    job.script("run.sh", "python -c 'import shade; print(shade.VERSION)'")
    assert job.run()[:2] == (0, "1.0\n")
    job.script("train.py", "import shade, numpy; print(shade.VERSION)")
    assert job.run()[:2] == (0, "1.0\n")
    (job.base / "code" / "requirements.txt").write_text("nothing-of-that-name\n")
    assert job.run()[0] == 1
    assert job.failure.startswith("The requirements in code/requirements.txt cannot be installed: ")


INSTALLS = """
import subprocess, sys
subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", "tint"])
subprocess.check_call(["pip", "install", "--quiet", "hue"])
print(subprocess.check_output(["python", "-c", "import hue, shade, tint, numpy; print('seen')"]))
"""


def test_what_a_script_installs_itself_is_its_containers_own(job, tmp_path):
    for name in ("shade", "hue", "tint"):
        make_wheel(tmp_path / "wheels", name, "1.0")
    make_own_python(tmp_path / "python")
    job.environ |= {
        "PATH": f"{tmp_path}/python/bin:{job.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "SAGEHEN_ENVIRONMENTS": str(tmp_path / "environments"),
        "SAGEHEN_PYTHON": str(own_python(tmp_path / "python")),
    }
    job.script("train.py", INSTALLS)
    (job.base / "code" / "requirements.txt").write_text("shade\n")
    status, out, errors = job.run()
    assert (status, out) == (0, "b'seen\\n'\n"), errors
    where = {
        name: {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob(f"{name}.py")}
        for name in ("shade", "hue", "tint")
    }
    assert where == {"shade": {"environments"}, "hue": {"python"}, "tint": {"python"}}
    assert [name for name in where if importlib.util.find_spec(name)] == []


def test_a_package_is_installed_and_run_as_a_module(job, tmp_path):
    for name, text in {
        "pyproject.toml": projects.PROJECT,
        "backend.py": projects.BACKEND.replace(', requires="shade==1.0"', ""),
        "wheels.py": Path(wheels.__file__).read_text(),
    }.items():
        (job.base / "code" / name).write_text(text)
    job.environ |= {"PIP_NO_INDEX": "1", "SAGEHEN_ENVIRONMENTS": str(tmp_path / "environments")}
    (job.base / "code" / "pkg").mkdir()
    job.script("pkg/train.py", "import hue, sys; print(hue.VERSION, sys.argv[1:])")
    job.parameters["a"] = "1"
    assert job.run()[:2] == (0, "1.0 ['-a', '1']\n")


def test_code_may_lie_in_a_channel(job):
    folder = job.base / "input" / "data" / "code"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "sourcedir.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("train.py")
        entry.size = len(b"print('from a channel')")
        archive.addfile(entry, io.BytesIO(b"print('from a channel')"))
    job.parameters = {
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": "/opt/ml/input/data/code/sourcedir.tar.gz",
    }
    assert job.run()[:2] == (0, "from a channel\n")


@pytest.fixture
def torch_job(job):
    """With a torchrun that only tells how it was started."""
    job.script("train.py", "")
    runner = job.base / "code" / "torch" / "distributed" / "run.py"
    runner.parent.mkdir(parents=True)
    for folder in (runner.parent, runner.parents[1]):
        (folder / "__init__.py").touch()
    runner.write_text("import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))")
    job.parameters |= {"sagemaker_torch_distributed_enabled": "true", "epochs": "3"}
    return job


class TestTorchDistributed:
    def test_torchrun_runs_the_script_on_each_host(self, torch_job):
        torch_job.config("resourceconfig.json", RESOURCES | {"current_host": "algo-2"})
        status, out, _ = torch_job.run()
        assert status == 0
        given, environ = json.loads(out)
        options = "--nnodes 2 --nproc_per_node 1 --master_addr algo-1 --master_port 7777"
        assert " ".join(given) == f"{options} --node_rank 1 train.py --epochs 3"
        assert (environ["NCCL_SOCKET_IFNAME"], environ["NCCL_PROTO"]) == ("eth0", "simple")

    def test_the_platform_says_where_the_first_host_is(self, torch_job):
        torch_job.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7780"}
        torch_job.parameters["sagemaker_mpi_num_of_processes_per_host"] = "4"
        given = json.loads(torch_job.run()[1])[0]
        assert given[2:8] == [
            *("--nproc_per_node", "4"),
            *("--master_addr", "127.0.0.1"),
            *("--master_port", "7780"),
        ]

    def test_one_process_for_each_gpu(self, torch_job):
        torch_job.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2"
        assert json.loads(torch_job.run()[1])[0][3] == "3"


class TestBad:
    def failure(self, job):
        """What the script runner leaves as its failure; it says the same in the log."""
        status, _, errors = job.run()
        assert status == 1
        assert job.failure in errors
        assert "Traceback" not in errors
        return job.failure

    def test_no_program(self, job):
        assert "The hyperparameter sagemaker_program is missing" in self.failure(job)

    def test_no_archive(self, job):
        job.parameters = {"sagemaker_program": "run.py"}
        assert "The hyperparameter sagemaker_submit_directory is missing" in self.failure(job)

    def test_an_empty_archive(self, job):
        job.parameters["sagemaker_program"] = "run.py"
        assert (
            "The archive s3://bucket/source.tar.gz (sagemaker_submit_directory) has"
            in self.failure(job)
        )

    def test_an_archive_of_a_channel_that_is_none(self, job):
        job.parameters = {
            "sagemaker_program": "run.py",
            "sagemaker_submit_directory": "/opt/ml/input/data/code/sourcedir.tar.gz",
        }
        assert (
            "code/sourcedir.tar.gz (sagemaker_submit_directory) cannot be unpacked: "
            in self.failure(job)
        )

    def test_a_script_that_is_not_in_the_archive(self, job):
        job.script("other.py", "")
        job.parameters["sagemaker_program"] = '"train.py"'
        assert (
            "There is no script 'train.py' in s3://bucket/source.tar.gz, which has other.py."
            in self.failure(job)
        )

    @pytest.mark.parametrize("program", ["../train.py", "/etc/passwd", "/opt/ml/model/x.py"])
    def test_a_script_that_lies_elsewhere(self, job, program):
        job.script("train.py", "")
        job.parameters["sagemaker_program"] = program
        assert (
            f"sagemaker_program is {program!r}, which is not in the code's folder."
            in self.failure(job)
        )

    def test_parameters_that_are_not_json(self, job):
        process_config = job.config
        job.config = lambda *_: None
        process_config("hyperparameters.json", "x")
        assert "/opt/ml/input/config/hyperparameters.json is not a JSON object." in self.failure(
            job
        )
        (job.base / "output" / "failure").unlink()
        (job.base / "input" / "config" / "hyperparameters.json").write_text("{")
        assert "/opt/ml/input/config/hyperparameters.json cannot be read: " in self.failure(job)

    def test_a_shebang_of_windows(self, job):
        job.script("run.sh", "#!/bin/bash\r\necho\r\n")
        assert (
            "'run.sh' cannot be executed: the program that its first line (#!) names"
            in self.failure(job)
        )

    def test_parameters_too_long_for_a_process(self, job):
        job.script("train.py", "")
        job.parameters["long"] = "x" * 200_000
        assert "The hyperparameters are too long to be given to a script" in self.failure(job)

    def test_a_distribution(self, job):
        job.script("train.py", "")
        job.parameters["sagemaker_mpi_enabled"] = "true"
        assert (
            "sagemaker_mpi_enabled is set, but this distribution is not supported. Use torch_dist"
            in self.failure(job)
        )

    @pytest.mark.parametrize("name", ["train.sh", "train"])
    def test_a_command_for_torchrun(self, torch_job, name):
        torch_job.script(name, "")
        assert f"{name} is a package or a command" in self.failure(torch_job)

    @pytest.mark.parametrize(("given", "shown"), [("some", "'some'"), ("true", "True")])
    def test_a_number_of_processes(self, torch_job, given, shown):
        torch_job.parameters["sagemaker_mpi_num_of_processes_per_host"] = given
        assert f"is {shown}; it must be a number from 1" in self.failure(torch_job)

    def test_a_log_level(self, job):
        job.script("train.py", "")
        job.parameters["sagemaker_container_log_level"] = '"LOUD"'
        assert (
            "sagemaker_container_log_level is 'LOUD'; it must be a number such as 20"
            in self.failure(job)
        )
