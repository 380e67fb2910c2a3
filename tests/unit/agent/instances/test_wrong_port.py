"""When a port is wrong, and when it only is not the last to be opened."""

from collections.abc import Iterable

from sagehen.agent.instances.wrong_port import WRONG_PORT_SECONDS, WrongPort


async def readings(*ports: Iterable[int], answering: Iterable[int] = (5000,)) -> list[int | None]:
    """What is found when these ports are listened on, a second after one another."""

    async def answers(port: int) -> bool:
        return port in answering

    wrong_port = WrongPort(8080)
    return [
        await wrong_port.check(float(second), listening, answers)
        for second, listening in enumerate(ports)
    ]


COUNT = int(WRONG_PORT_SECONDS)


async def test_a_port_that_answers_ping_all_the_time_is_wrong() -> None:
    assert await readings(*[[5000, 9000]] * (COUNT + 1)) == [None] * COUNT + [5000]


async def test_one_that_does_not_answer_ping_may_be_for_something_else() -> None:
    assert not any(await readings(*[[9000]] * 100))


async def test_the_right_port_may_come_later() -> None:
    found = await readings(*[[5000]] * COUNT, *[[5000, 8080]] * 50)
    assert not any(found)


async def test_time_counts_anew_after_a_pause() -> None:
    found = await readings(*[[5000]] * COUNT, [], *[[5000]] * (COUNT + 1))
    assert found[:-1] == [None] * (2 * COUNT + 1)
    assert found[-1] == 5000


async def test_it_is_not_looked_for_too_often() -> None:
    wrong_port = WrongPort(8080)
    assert wrong_port.is_due(0.0)
    await wrong_port.check(10.0, [], lambda _: None)  # type: ignore[arg-type,return-value]
    assert not wrong_port.is_due(10.5)
    assert wrong_port.is_due(11.0)
