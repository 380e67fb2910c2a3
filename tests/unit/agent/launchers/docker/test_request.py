"""What the engine is asked for."""

from dataclasses import replace

from sagehen.agent.launchers.docker.request import ImageInfo, choose_port, container_request

BINDS = {"com.amazonaws.sagemaker.capabilities.accept-bind-to-port": "true"}
INFO = ImageInfo(name="mine:1", labels={})


def requested(plan, info=INFO, network="net", **environment):
    return container_request(plan, info, network, environment, {"of": "home"})


def test_limits_are_the_instances(plan) -> None:
    host = requested(plan)["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 2**28
    assert host["ShmSize"] == 2**27
    assert host["NanoCpus"] == 2_000_000_000
    assert host["PidsLimit"] == 100
    assert "DeviceRequests" not in host
    assert host["RestartPolicy"] == {"Name": "no"}


def test_cards_are_requested_by_id(plan) -> None:
    (devices,) = requested(replace(plan, gpus=("0", "2")))["HostConfig"]["DeviceRequests"]
    assert devices["DeviceIDs"] == ["0", "2"]
    assert devices["Capabilities"] == [["gpu"]]


def test_an_open_file_limit_below_ours_is_kept(plan, monkeypatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1, 1024))
    limits = requested(plan)["HostConfig"]["Ulimits"]
    assert limits[0] == {"Name": "nofile", "Soft": 1024, "Hard": 1024}


def test_folders_are_mounted_one_by_one(plan, tmp_path) -> None:
    (plan.base / "code").mkdir()
    (plan.base / "input").symlink_to(tmp_path)
    (plan.base / "file").touch()
    mounts = {mount["Target"]: mount for mount in requested(plan)["HostConfig"]["Mounts"]}
    assert mounts.keys() == {"/opt/ml/model", "/opt/ml/input"}  # the image keeps its own code
    assert mounts["/opt/ml/input"]["Source"] == str(tmp_path)
    assert [mounts[name]["ReadOnly"] for name in sorted(mounts)] == [True, False]
    (plan.base / "code" / "train.py").touch()
    targets = [mount["Target"] for mount in requested(plan)["HostConfig"]["Mounts"]]
    assert "/opt/ml/code" in targets


def test_only_labelled_images_of_a_pipeline_are_told_their_port(plan, change) -> None:
    second = change(number=2, containers=2)
    labelled = replace(INFO, labels=BINDS)
    assert choose_port(second.image, labelled) == 8081
    assert "SAGEMAKER_BIND_TO_PORT=8081" in requested(second, labelled)["Env"]
    assert choose_port(second.image, INFO) == 8080
    assert requested(second)["Env"] == ["A=b"]
    assert choose_port(plan.image, labelled) == 8080
    assert requested(plan, labelled)["Env"] == ["A=b"]


def test_an_entry_point_replaces_the_images(plan, change) -> None:
    assert "Entrypoint" not in requested(plan)
    assert requested(change(entrypoint=("/bin/sh",)))["Entrypoint"] == ["/bin/sh"]


def test_a_container_without_a_network_joins_none(plan) -> None:
    assert "NetworkingConfig" not in requested(plan, network="none")
    joined = requested(plan)["NetworkingConfig"]["EndpointsConfig"]
    assert joined == {"net": {"Aliases": ["primary"]}}
