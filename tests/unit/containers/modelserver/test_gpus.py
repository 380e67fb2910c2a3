"""PyTorch here is an object: no GPU is needed."""

import sys
from types import SimpleNamespace

import pytest

from sagehen.base.errors import SettingError
from sagehen.containers.modelserver.environment import read_environment
from sagehen.containers.modelserver.gpus import use_gpu, visible_gpus, worker_gpu


@pytest.mark.parametrize(
    ("devices", "count"), [("", 0), ("-1", 0), ("0", 1), ("1, 3", 2), ("MIG-a,MIG-b", 2)]
)
def test_counts_the_visible_gpus(devices, count):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": devices}) == count
    assert visible_gpus({}) == 0


def test_a_script_has_a_worker_for_each_gpu():
    environ = {"CUDA_VISIBLE_DEVICES": "2,3,5"}
    assert read_environment(environ).workers == 3
    assert read_environment(environ | {"SAGEMAKER_MODEL_SERVER_WORKERS": "7"}).workers == 7
    assert read_environment(environ | {"SAGEMAKER_MULTI_MODEL": "true"}).workers == 1


def test_each_worker_has_its_gpu():
    environ = {"CUDA_VISIBLE_DEVICES": "2,3", "SAGEHEN_WORKER_GPU": "1"}
    assert worker_gpu(environ) == 1
    assert worker_gpu({"CUDA_VISIBLE_DEVICES": "2"}) == 0
    assert worker_gpu({"CUDA_VISIBLE_DEVICES": "", "SAGEHEN_WORKER_GPU": "1"}) is None


@pytest.mark.parametrize("text", ["0", "1.1", "much", "-1"])
def test_refuses_what_is_no_fraction(text):
    with pytest.raises(SettingError, match=r"SAGEHEN_GPU_FRACTION is '.*'; it must be above 0"):
        read_environment({"SAGEHEN_GPU_FRACTION": text})


class Cuda:
    def __init__(self, count):
        self.count = count
        self.device = None
        self.fractions = {}

    def is_available(self):
        return self.count > 0

    def device_count(self):
        return self.count

    def set_device(self, number):
        self.device = number

    def set_per_process_memory_fraction(self, fraction, device):
        self.fractions[device] = fraction


@pytest.fixture
def make_cuda(monkeypatch):
    def make(count):
        cuda = Cuda(count)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        return cuda

    return make


def test_workers_share_the_containers_fraction(make_cuda):
    cuda = make_cuda(2)
    use_gpu(1, 0.5, processes=2)
    assert (cuda.device, cuda.fractions) == (1, {0: 0.25, 1: 0.25})


@pytest.mark.parametrize("fraction", [None, 1.0])
def test_a_whole_gpu_is_not_limited(make_cuda, fraction):
    cuda = make_cuda(1)
    use_gpu(0, fraction, processes=1)
    assert (cuda.device, cuda.fractions) == (0, {})


def test_without_a_gpu_or_pytorch_nothing_is_set(make_cuda, monkeypatch):
    for count, gpu in ((0, 0), (1, None)):
        cuda = make_cuda(count)
        use_gpu(gpu, 0.5, processes=1)
        assert (cuda.device, cuda.fractions) == (None, {})
    monkeypatch.delitem(sys.modules, "torch")
    use_gpu(0, 0.5, processes=1)
    assert "torch" not in sys.modules
