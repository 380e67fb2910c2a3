"""What a request leaves is freed at once: the collector seldom comes, and stops everybody."""

import gc
from collections import Counter

import pytest

from sagehen.domain.routes import VariantRoute

OF_ONE_REQUEST = {
    "Account",
    "Admitted",
    "Body",
    "ContainerAnswer",
    "Exchange",
    "Invocation",
    "Placement",
    "StreamedAnswer",
    "StreamedInvocation",
    "_Copy",
}
STREAM = "/endpoints/price/invocations-response-stream"


@pytest.fixture
def kept():
    """`kept()` counts what was made for one request and only the collector would free."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)

    def count() -> Counter[str]:
        gc.collect()
        names = Counter(type(one).__name__ for one in gc.garbage)
        gc.garbage.clear()
        return Counter({name: names[name] for name in OF_ONE_REQUEST & names.keys()})

    yield count
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize(
    "path", ["/endpoints/price/invocations", STREAM], ids=["whole", "streamed"]
)
@pytest.mark.parametrize("status", [200, 500])
async def test_an_invocation_leaves_no_cycle(house, variant, kept, path, status):
    fake = await house.fake(lambda asked: (status, {}, b"4"))
    house.route(variant(fake))
    await house.start()
    client = await house.connect()
    for _ in range(5):
        client.send(house.signed(path=path))
        await client.answer()
    assert kept() == {}


async def test_a_copy_for_a_shadow_leaves_none(house, variant, kept, echo, eventually):
    production, copied = await house.fake(echo), await house.fake(echo)
    shadow: VariantRoute = variant(copied, name="Next")
    house.route(variant(production), shadow=shadow)
    await house.start()
    client = await house.connect()
    for _ in range(5):
        client.send(house.signed())
        await client.answer()
    await eventually(lambda: len(copied.asked) == 5 and house.outstanding() == 0)
    assert kept() == {}
