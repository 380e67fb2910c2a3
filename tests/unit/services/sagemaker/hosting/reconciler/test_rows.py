"""Foreseeing what the rows will be."""

from sagehen.services.sagemaker.hosting.reconciler.plan import EndpointStep
from sagehen.services.sagemaker.hosting.reconciler.rows import make_rows, rows_after
from sagehen.services.sagemaker.hosting.records import EndpointStatus
from support.fleet import NAME, deployment, endpoint, instance

SERVING = endpoint(EndpointStatus.IN_SERVICE, current=deployment("d1", 1))


def test_rows_are_told_apart_by_their_endpoint() -> None:
    rows = make_rows([SERVING], [instance("i1"), instance("i2", endpoint_name="Old")])

    assert rows.names == [NAME, "Old"]
    assert [one.instance_id for one in rows.instances["Old"]] == ["i2"]
    assert rows.instance_ids == {"i1", "i2"}


def test_every_change_of_a_step_is_foreseen() -> None:
    rows = make_rows([SERVING], [instance("i1"), instance("i2"), instance("i3")])
    leaving = instance("i2", stop_at=1.0)
    failed = endpoint(EndpointStatus.FAILED)

    after = rows_after(
        rows,
        {
            NAME: EndpointStep(
                endpoint=failed, added=(instance("i4"),), changed=(leaving,), dropped=("i1",)
            )
        },
    )

    assert after.endpoints == {NAME: failed}
    assert after.instances[NAME] == (leaving, instance("i3"), instance("i4"))
    assert rows.instance_ids == {"i1", "i2", "i3"}


def test_what_will_be_gone_is_foreseen() -> None:
    rows = make_rows([SERVING], [])

    assert rows_after(rows, {NAME: EndpointStep(gone=SERVING)}).endpoints == {}
