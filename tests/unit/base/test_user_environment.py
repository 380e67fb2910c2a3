"""What pip and CUDA are told by the user's environment."""

from sagehen.base.user_environment import cuda_devices, mps_folder, pip_variables


def test_the_users_settings_of_pip_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pip_variables({"PATH": "/bin"}) == {}
    file = tmp_path / ".config" / "pip" / "pip.conf"
    file.parent.mkdir(parents=True)
    file.touch()
    given = {"PIP_INDEX_URL": "https://mine/", "HTTPS_PROXY": "http://proxy", "PIP_CERT": "/own"}
    assert pip_variables({**given, "REQUESTS_CA_BUNDLE": "/other"}) == {
        "PIP_INDEX_URL": "https://mine/",
        "PIP_PROXY": "http://proxy",
        "PIP_CERT": "/own",
        "PIP_CONFIG_FILE": str(file),
    }


def test_cuda_devices_may_be_none_or_unset():
    assert cuda_devices({}) is None
    assert cuda_devices({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert cuda_devices({"CUDA_VISIBLE_DEVICES": "1, GPU-5d5b"}) == ("1", "GPU-5d5b")


def test_an_mps_daemon_is_found_where_it_listens(tmp_path):
    chosen = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert mps_folder(chosen) is None
    (tmp_path / "control").touch()
    assert mps_folder(chosen) == tmp_path
