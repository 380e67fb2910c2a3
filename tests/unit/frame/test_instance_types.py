"""The table of instance types has what clients may name, and nothing absurd."""

import botocore
import botocore.session
import pytest

from sagehen.base.errors import Invalid
from sagehen.frame.instance_types import instance_types, require_instance_type

TABLE_MADE_FROM = (1, 44)
"""The botocore release whose types the table holds; a newer one may know more."""


def version() -> tuple[int, ...]:
    return tuple(int(part) for part in botocore.__version__.split(".")[:2])


@pytest.mark.skipif(version() > TABLE_MADE_FROM, reason="this botocore is newer than the table")
def test_every_type_that_a_client_may_name_has_a_row():
    model = botocore.session.get_session().get_service_model("sagemaker")
    named = set(model.shape_for("ProductionVariantInstanceType").enum)
    assert named - instance_types().keys() == set()


def test_the_oldest_types_stay():
    assert {"ml.t2.medium", "ml.m4.xlarge", "ml.m5.large", "ml.p3.2xlarge"} <= set(instance_types())


def test_rows_are_plausible():
    for one in instance_types().values():
        assert 1 <= one.vcpus <= 192, one
        # From compute types at under 2 GiB a vCPU to the largest GPU machines at over 20.
        assert 1.6 <= one.memory_gib / one.vcpus <= 22, one
        assert one.memory_bytes == one.memory_gib * 2**30
        assert (one.gpus > 0) == (one.gpu_memory_gb > 0), one
        assert one.gpus in (0, 1, 2, 4, 8, 16), one
        assert (one.gpus > 0) == (one.instance_type.split(".")[1][0] in "gp"), one


def test_known_ones():
    m5 = require_instance_type("ml.m5.24xlarge")
    assert (m5.vcpus, m5.memory_gib, m5.gpus) == (96, 384, 0)
    g5 = require_instance_type("ml.g5.12xlarge")
    assert (g5.vcpus, g5.memory_gib, g5.gpus, g5.gpu_memory_gb) == (48, 192, 4, 24)


def test_larger_sizes_have_more():
    families: dict[str, list[int]] = {}
    for one in instance_types().values():
        families.setdefault(one.instance_type.split(".")[1], []).append(one.vcpus)
    assert all(sorted(sizes) == sizes for sizes in families.values())


def test_unknown_type():
    with pytest.raises(Invalid, match=r"ml\.z1\.nano"):
        require_instance_type("ml.z1.nano")
