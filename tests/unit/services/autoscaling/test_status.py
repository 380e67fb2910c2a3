"""What `sagehen status` shows of scalable targets."""

from sagehen.services.autoscaling.status import read_scaling


def read(scaling):
    with scaling.database.read() as connection:
        return read_scaling(connection)


def test_a_target_says_what_it_did_last(scaling):
    assert read(scaling) == {}
    scaling.register(3, 9)
    scaling.settle()
    scaling.step()
    ((status,),) = read(scaling).values()
    assert (status.minimum, status.maximum, status.policies) == (3, 9, 1)
    assert (status.count, status.reason) == (
        "instance count",
        "The minimum capacity was set to 3.",
    )
    scaling.alarm(scaling.track()["PolicyARN"], 60)
    found = read(scaling)
    assert list(found) == [("e", "v")]
    ((status,),) = found.values()
    assert status.policies == 2
    assert status.reason == "Policy p: The metric is 60, above the threshold 50 of alarm high."
    assert status.decided_at == scaling.clock.now()
