import pytest

from sagehen.agent.neighbours import directory as module
from sagehen.agent.neighbours.directory import FETCH_SECONDS, ArtifactDirectory
from support.clock import HandClock

URL, NAME = "s3://bucket/model", "a" * 40


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def directory(clock: HandClock) -> ArtifactDirectory:
    return ArtifactDirectory(clock)


def test_one_of_many_that_begin_at_once_asks_the_store(directory: ArtifactDirectory) -> None:
    sources = [directory.choose_source(URL, NAME, f"n{number}") for number in range(20)]
    assert sources[0] is None
    assert None not in sources[1:]
    assert max(sources.count(f"n{number}") for number in range(20)) == 2
    # A tree: few steps from the store to the last one.
    depths = {"n0": 0}
    for number, source in enumerate(sources[1:], 1):
        depths[f"n{number}"] = depths[str(source)] + 1
    assert max(depths.values()) == 4
    assert directory.holders(URL) == tuple(depths)


def test_a_node_that_has_it_for_long_is_a_source_again(
    directory: ArtifactDirectory, clock: HandClock
) -> None:
    for node in "abc":
        directory.choose_source(URL, NAME, node)
    assert directory.choose_source(URL, NAME, "d") == "b"
    clock.seconds += FETCH_SECONDS
    assert directory.choose_source(URL, NAME, "e") == "a"


def test_nodes_that_lost_it_are_forgotten_and_slow_ones_are_not(
    directory: ArtifactDirectory,
) -> None:
    for node in "ab":
        directory.choose_source(URL, NAME, node)
    assert directory.choose_source(URL, NAME, "c", gone=["a"]) == "b"
    assert directory.holders(URL) == ("b", "c")
    assert directory.choose_source(URL, NAME, "c", avoid=["b"]) is None
    assert directory.choose_source(URL, NAME, "d") == "b"


def test_no_node_is_sent_to_one_that_waits_for_it(directory: ArtifactDirectory) -> None:
    for node in "ab":
        directory.choose_source(URL, NAME, node)
    # `a` has lost it, and asks again: `b` may still wait for it.
    assert directory.choose_source(URL, NAME, "a") is None
    # `b` goes elsewhere, so that `a` may wait for `b`.
    assert directory.choose_source(URL, NAME, "b", avoid=["a"]) is None
    assert directory.choose_source(URL, NAME, "a") == "b"


def test_another_version_is_another_artifact(directory: ArtifactDirectory) -> None:
    directory.choose_source(URL, NAME, "a")
    assert directory.choose_source(URL, "b" * 40, "b") is None
    assert directory.holders(URL) == ("a", "b")
    directory.choose_source(URL, "c" * 40, "c")
    assert directory.holders(URL) == ("b", "c")


def test_announced_holders_are_sources_at_once(directory: ArtifactDirectory) -> None:
    directory.note_holder(URL, NAME, "a")
    assert [directory.choose_source(URL, NAME, node) for node in "bc"] == ["a", "a"]
    directory.note_holder(URL, NAME, "b")
    assert directory.choose_source(URL, NAME, "d") == "b"


def test_old_entries_and_too_many_are_dropped(
    directory: ArtifactDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_URLS", 2)
    monkeypatch.setattr(module, "MAX_NODES", 2)
    for node in "abc":
        directory.choose_source(URL, NAME, node)
    assert directory.holders(URL) == ("a", "b")
    for other in ("x", "y"):
        directory.note_holder(other, NAME, "a")
    assert directory.holders(URL) == ()
