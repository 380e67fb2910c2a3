"""Sessions, pipelines, direct containers and shadows with instances on other nodes."""

from sagehen.frame.routes import (
    ContainerAddress,
    ContainerRoute,
    ExecutionMode,
    Route,
    VariantRoute,
)


def sessions(asked):
    """A container that begins and ends sessions."""
    session = asked.fields.get("x-amzn-sagemaker-session-id", "")
    if session == "NEW_SESSION":
        return 200, {"X-Amzn-SageMaker-Session-Id": "s-1; Expires=2999-01-01T00:00:00Z"}, b"new"
    headers = {"X-Amzn-SageMaker-Closed-Session-Id": session} if asked.body == b"close" else {}
    return 200, headers, session.encode()


async def test_a_session_stays_with_its_instance_from_every_node(nodes, echo, eventually):
    await nodes.start(3)
    fakes = [await nodes[at].fake(sessions) for at in (1, 2, 2)]
    nodes.route(
        nodes.variant(
            *(nodes.instance(at, fake) for at, fake in zip((1, 2, 2), fakes, strict=True))
        )
    )
    await nodes.are_linked()
    got = await nodes[0].invoke(X_Amzn_SageMaker_Session_Id="NEW_SESSION")
    assert got.headers["x-amzn-sagemaker-new-session-id"].startswith("s-1")
    (holder,) = [fake for fake in fakes if fake.asked]
    await eventually(
        lambda: all(list((house.home.run / "sessions").iterdir()) for house in nodes.houses)
    )
    for house in nodes.houses:
        for _ in range(3):
            assert (await house.invoke(X_Amzn_SageMaker_Session_Id="s-1")).body == b"s-1"
    assert len(holder.asked) == 10
    closed = await nodes[1].invoke(b"close", X_Amzn_SageMaker_Session_Id="s-1")
    assert closed.headers["x-amzn-sagemaker-closed-session-id"] == "s-1"
    await eventually(
        lambda: not any(list((house.home.run / "sessions").iterdir()) for house in nodes.houses)
    )
    assert (await nodes[0].invoke(X_Amzn_SageMaker_Session_Id="s-1")).status == 400
    await eventually(lambda: nodes.have_nothing_left)


def several(nodes, node: int, *fakes, mode: ExecutionMode) -> VariantRoute:
    """A variant with one instance of several containers."""
    containers = tuple(
        ContainerAddress(address=fake.address, inflight_column=100 + at)
        for at, fake in enumerate(fakes)
    )
    instance = nodes.instance(node, fakes[0], containers=containers)
    names = tuple(ContainerRoute(hostname=f"c{at}") for at in range(len(fakes)))
    return nodes.variant(instance, containers=names, mode=mode)


async def test_a_pipeline_runs_on_the_node_of_its_instance(nodes, eventually):
    await nodes.start(2)

    def first(asked):
        return 200, {"Content-Type": "text/csv"}, asked.body + b" first"

    def second(asked):
        if b"bad" in asked.body:
            return 400, {}, b"bad luck"
        return 200, {"Content-Type": "text/plain"}, asked.body + b" second"

    fakes = [await nodes[1].fake(each) for each in (first, second)]
    nodes.route(several(nodes, 1, *fakes, mode=ExecutionMode.SERIAL))
    await nodes.are_linked()
    got = await nodes[0].invoke(b"1")
    assert (got.status, got.body, got.headers["content-type"]) == (
        200,
        b"1 first second",
        "text/plain",
    )
    here, there = await nodes[1].invoke(b"bad"), await nodes[0].invoke(b"bad")
    assert (here.status, here.json) == (there.status, there.json)
    assert there.json["OriginalMessage"] == "bad luck"
    assert "c1" in there.json["Message"]
    stage = nodes[1].gateway._counters.variant("price", "Main", "c1", is_stage=True)
    assert (stage.invocations, stage.errors_4xx) == (3, 2)
    await eventually(lambda: nodes.have_nothing_left)


async def test_containers_are_invoked_directly_on_another_node(nodes, eventually):
    await nodes.start(2)
    fakes = [
        await nodes[1].fake(lambda asked, name=name: (200, {}, name)) for name in (b"c0", b"c1")
    ]
    nodes.route(several(nodes, 1, *fakes, mode=ExecutionMode.DIRECT))
    await nodes.are_linked()
    for name in ("c0", "c1"):
        got = await nodes[0].invoke(X_Amzn_SageMaker_Target_Container_Hostname=name)
        assert (got.status, got.body) == (200, name.encode())
    await eventually(lambda: nodes.have_nothing_left)


async def test_a_shadow_on_another_node_gets_copies(nodes, echo, eventually):
    await nodes.start(2)
    real, shadow = await nodes[0].fake(echo), await nodes[1].fake(echo)
    nodes.table(
        Route(
            endpoint_name="price",
            variants=(nodes.variant(nodes.instance(0, real)),),
            shadow=nodes.variant(nodes.instance(1, shadow), name="Shadow"),
        )
    )
    await nodes.are_linked()
    for number in range(5):
        assert (await nodes[0].invoke(b"%d" % number)).body == b"%d" % number
    await eventually(lambda: len(shadow.asked) == 5)
    await eventually(lambda: nodes.have_nothing_left)
