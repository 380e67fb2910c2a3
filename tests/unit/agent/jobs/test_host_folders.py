"""A host's folders and the files of input/config."""

import json
from pathlib import Path

import pytest

from sagehen.agent.jobs.host_folders import check_spec, host_paths, prepare_folders
from sagehen.base.errors import Invalid
from sagehen.base.home import Home
from sagehen.frame.job_specs import ChannelSpec, CheckpointSpec
from support.jobs import MakeSpec


def channel(name: str, **members: str) -> ChannelSpec:
    return ChannelSpec(name=name, s3_uri="s3://bucket/data", **members)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"job_name": "../a"}, "cannot be a job's name"),
        ({"instance_count": 0}, "1 to 100 hosts, not 0"),
        ({"instance_count": 101}, "1 to 100 hosts, not 101"),
        ({"channels": (channel("a"), channel("a"))}, "Two channels have the same name: a, a"),
        ({"channels": (channel(".."),)}, "cannot be a channel's name"),
        ({"channels": (channel("a", input_mode="Pipe"),)}, "use File or FastFile"),
        ({"output_uri": "bucket/out"}, "bucket/out"),
        *(
            (
                {"checkpoint": CheckpointSpec(s3_uri="s3://bucket/c", local_path=path)},
                "such as /opt/ml/checkpoints",
            )
            for path in ("/opt/ml", "/tmp/c", "/opt/ml/model/c", "/opt/ml/../c", "/opt/ml/a\0b")
        ),
    ],
)
def test_what_cannot_be_folders_is_invalid(members, reason: str, make_spec: MakeSpec) -> None:
    check_spec(make_spec())
    with pytest.raises(Invalid, match=reason):
        check_spec(make_spec(**members))


def test_the_folders_and_configuration_of_each_host(home: Home, make_spec: MakeSpec) -> None:
    home.jobs.mkdir(parents=True, exist_ok=True)
    spec = make_spec(
        instance_count=2,
        hyperparameters={"rate": "0.1"},
        channels=(channel("train", content_type="text/csv"), channel("test")),
        checkpoint=CheckpointSpec(s3_uri="s3://bucket/c", local_path="/opt/ml/kept/here"),
    )
    first, second = host_paths(home, spec)
    prepare_folders(second)
    assert not first.folder.exists()
    for folder in (second.tmp, second.model, second.output, second.code, second.channel("train")):
        assert folder.is_dir()
    assert second.checkpoints == second.base / "kept" / "here"
    assert second.python.exists()
    configs = {path.name: json.loads(path.read_text()) for path in second.config.iterdir()}
    assert configs["hyperparameters.json"] == {"rate": "0.1"}
    assert configs["inputdataconfig.json"]["train"] == {
        "ContentType": "text/csv",
        "TrainingInputMode": "File",
        "S3DistributionType": "FullyReplicated",
        "RecordWrapperType": "None",
    }
    assert "ContentType" not in configs["inputdataconfig.json"]["test"]
    resources = configs["resourceconfig.json"]
    assert (resources["current_host"], resources["hosts"]) == ("algo-2", ["algo-1", "algo-2"])


def test_hosts_are_sorted_as_sagemaker_sorts_them(home: Home, make_spec: MakeSpec) -> None:
    home.jobs.mkdir(parents=True, exist_ok=True)
    paths = host_paths(home, make_spec(instance_count=11))[0]
    prepare_folders(paths)
    resources = json.loads((paths.config / "resourceconfig.json").read_text())
    assert resources["hosts"][:3] == ["algo-1", "algo-10", "algo-11"]
    assert paths.log == Path(home.logs, "training-jobs", "count", "algo-1.log")
    assert paths.checkpoints is None
