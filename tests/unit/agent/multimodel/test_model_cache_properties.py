"""Whatever is asked of a multi-model cache, it holds what a simple list of models would."""

import asyncio
import io
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.agent.artifacts.artifacts import ArtifactCache
from sagehen.agent.errors import ModelNotReady
from sagehen.agent.multimodel.cached_models import LEASE_SECONDS
from sagehen.agent.multimodel.container_client import opaque_name
from sagehen.base.clock import SYSTEM
from support.fixtures.agent import MemoryReader
from support.model_bench import SIZE, Bench

ROOM = 3
LETTERS = "abcde"

steps = st.lists(
    st.tuples(
        st.sampled_from(["use"] * 4 + ["load", "return", "touch", "lose", "wait", "together"]),
        st.sampled_from(LETTERS),
    ),
    min_size=5,
    max_size=30,
)


class Simple:
    """Names, the least recently used first, how often each is lent, and when it was used."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.lent: Counter[str] = Counter()
        self.used_at: dict[str, float] = {}

    def use(self, letter: str, now: float) -> None:
        self.order.remove(letter)
        self.order.append(letter)
        self.used_at[letter] = now

    def idle(self, now: float) -> list[str]:
        return [
            one
            for one in self.order
            if not self.lent[one] or now - self.used_at[one] > LEASE_SECONDS
        ]

    def drop(self, letter: str) -> None:
        self.order.remove(letter)
        del self.lent[letter]

    def load(self, letter: str, now: float) -> bool:
        """Whether it was there."""
        hit = letter in self.order
        if not hit:
            if len(self.order) == ROOM:
                self.drop(self.idle(now)[0])
            self.order.append(letter)
        self.use(letter, now)
        self.lent[letter] += 1
        return hit


class Pair:
    """The cache and its simple image, which go through the same."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.simple = Simple()

    @property
    def now(self) -> float:
        return self.bench.clock.seconds

    async def load(self, letter: str) -> None:
        simple, cache = self.simple, self.bench.cache
        full = letter not in simple.order and len(simple.order) == ROOM
        if full and not simple.idle(self.now):
            with pytest.raises(ModelNotReady):
                await cache.load(letter, 0)
            await self.give_back(simple.order[0], all_of_it=True)
        expected = simple.load(letter, self.now)
        assert (await cache.load(letter, 60)).hit is expected

    async def give_back(self, letter: str, all_of_it: bool = False) -> None:
        times = self.simple.lent[letter] if all_of_it else 1
        self.simple.lent[letter] = max(0, self.simple.lent[letter] - times)
        self.bench.cache.release({opaque_name(letter): times})

    async def lose(self, letter: str) -> None:
        """The container drops it by itself, and is asked for it once more."""
        if letter in self.simple.order:
            del self.bench.container.models[opaque_name(letter)]
            self.simple.drop(letter)
            await self.load(letter)

    async def together(self, letter: str) -> None:
        """Several ask for one model at once: it is loaded once, and all have borrowed it."""
        before = len(self.bench.container.loads)
        await self.load(letter)
        await asyncio.gather(*(self.bench.cache.load(letter, 60) for _ in range(3)))
        self.simple.lent[letter] += 3
        assert len(self.bench.container.loads) - before <= 1

    async def step(self, what: str, letter: str) -> None:
        self.bench.clock.seconds += 0.1
        if what == "load":
            await self.load(letter)
        elif what == "use":
            await self.load(letter)
            await self.give_back(letter)
        elif what == "return":
            await self.give_back(letter)
        elif what == "touch":
            self.bench.cache.touch([opaque_name(letter)])
            if letter in self.simple.order:
                self.simple.use(letter, self.now)
        elif what == "lose":
            await self.lose(letter)
        elif what == "together":
            await self.together(letter)
        else:
            self.bench.clock.seconds += LEASE_SECONDS

    def check(self) -> None:
        bench, held = self.bench, set(self.simple.order)
        assert bench.held == held
        assert {path.name for path in bench.folder.iterdir()} == set(map(opaque_name, held))
        assert bench.cache.loaded_count == len(held) <= ROOM
        assert bench.cache.charged_bytes == len(held) * SIZE


@settings(max_examples=40, deadline=None)
@given(steps)
def test_a_cache_holds_what_a_simple_list_would(taken: list[tuple[str, str]]) -> None:
    asyncio.run(go_through(taken))


async def go_through(taken: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reader = MemoryReader()
        for letter in LETTERS:
            reader.objects[f"s3://bucket/models/{letter}"] = archive()
        artifacts = ArtifactCache(
            Path(folder, "artifacts"),
            reader,
            max_artifact_bytes=2**20,
            max_unused_bytes=2**30,
            clock=SYSTEM,
        )
        artifacts.open()
        models = Path(folder, "models")
        models.mkdir()  # noqa: ASYNC240
        pair = Pair(Bench(models, artifacts, ROOM * SIZE, keep=True, max_load_seconds=360))
        for what, letter in taken:
            await pair.step(what, letter)
            pair.check()
        assert len(reader.reads) == len(set(reader.reads)), "what is on disk is not fetched again"
        await pair.bench.cache.close()
        assert (list(models.iterdir()), artifacts._in_use) == ([], {})  # noqa: ASYNC240


def archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("model")
        member.size = SIZE
        tar.addfile(member, io.BytesIO(bytes(SIZE)))
    return packed.getvalue()
