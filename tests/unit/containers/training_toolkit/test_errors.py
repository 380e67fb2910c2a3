"""What of a script's errors becomes the reason."""

from sagehen.containers.training_toolkit.errors import describe_failure

TRACEBACK = """Epoch 1
ValueError: of a log, not of the end
Traceback (most recent call last):
  File "train.py", line 1, in <module>
    raise KeyError("first")
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("boom\\nand more")
ValueError: boom
and more
"""


def test_it_is_the_exception_that_it_ended_with():
    assert describe_failure(1, ["python", "train.py", "--epochs", "3"], TRACEBACK) == (
        "ExecuteUserScriptError:\nExitCode 1\n"
        'ErrorMessage "ValueError: boom\nand more (train.py, line 3)"\n'
        'Command "python train.py --epochs 3"'
    )


def test_of_another_program_its_last_lines():
    errors = "".join(f"line {n}\n" for n in range(9)) + "50%\r100%\n"
    assert 'ErrorMessage "line 6\nline 7\nline 8\n50%\n100%"' in describe_failure(
        2, ["./run.sh"], errors
    )


def test_a_kill_is_taken_for_want_of_memory_as_the_toolkit_does():
    told = describe_failure(137, ["python", "train.py"], "")
    assert 'ExitCode 137\nErrorMessage ""\nExtraInfo "OutOfMemory: Process killed' in told


def test_the_command_is_told_though_the_message_is_long():
    told = describe_failure(1, ["python", "train.py"], "x" * 10_000)
    assert len(told) < 1024
    assert told.endswith('Command "python train.py"')


def test_a_traceback_cut_off_before_its_end_is_told_by_its_last_lines():
    cut = 'Traceback (most recent call last):\n  File "train.py", line 1\n'
    assert 'File "train.py", line 1"' in describe_failure(139, ["python"], cut)


def test_what_torchrun_says_of_its_script_is_not_why_it_failed():
    torchruns = (
        "E1122 08:57:49.043000 32724 torch/distributed/elastic/agent/api.py:1002] failed\n"
        "Traceback (most recent call last):\n"
        '  File "run.py", line 1032, in <module>\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "====\ntrain.py FAILED\n  rank      : 1 (local_rank: 0)\n"
    )
    of_the_script = (
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "train.py", line 6, in <module>\n'
        "[rank1]: ValueError: bad luck\n"
    )
    assert 'ErrorMessage "ValueError: bad luck (train.py, line 6)"' in describe_failure(
        1, ["torchrun"], of_the_script + torchruns
    )
    assert 'ErrorMessage "torch.distributed' in describe_failure(1, ["torchrun"], torchruns)


def test_a_module_of_awss_images_is_named_as_such():
    errors = TRACEBACK.rstrip().rpartition("\n")[0]
    errors += "\nModuleNotFoundError: No module named 'sagemaker_containers.beta'"
    said = describe_failure(1, ["python", "train.py"], errors)
    assert "name sagemaker-containers in the requirements.txt beside the script" in said


def test_a_missing_module_is_named_with_the_remedy():
    errors = TRACEBACK.rstrip().rpartition("ValueError")[0]
    errors += "ModuleNotFoundError: No module named 'catboost.core'"
    assert (
        "No module named 'catboost.core' (train.py, line 3) (pack catboost beside the script, "
        "name its package in the requirements.txt beside it, "
        'or install it where Sagehen runs)"'
    ) in describe_failure(1, ["python", "train.py"], errors)
