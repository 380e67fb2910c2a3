"""The queue before the workers of a model, without any process."""

from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
from sagehen.containers.modelserver.workers.dispatcher import WorkerDispatcher
from sagehen.containers.modelserver.workers.messages import Answered
from sagehen.containers.modelserver.workers.worker_queue import SESSION
from support.fixtures.worker_queues import answered, make_queue, statuses, submit

__all__ = ["make_queue"]


async def test_some_work_some_wait_and_the_rest_is_refused(make_queue):
    dispatcher = WorkerDispatcher(workers=2, max_waiting=1)
    one, two = make_queue(dispatcher), make_queue(dispatcher)
    asked = submit(dispatcher, b"a", b"b", b"c", b"d")
    assert statuses(asked) == [None, None, None, 503]
    assert (one._worker.bodies, two._worker.bodies) == ([b"a"], [b"b"])
    two.answered(answered(), b"B")
    assert asked[1].answer == ModelAnswer(200, b"B", "text/x", (("k", "v"),))
    assert two._worker.bodies == [b"b", b"c"]
    one.answered(answered(), b"A")
    two.answered(answered(), b"C")
    await dispatcher.drained()
    assert [request.answer.body for request in asked[:3]] == [b"A", b"B", b"C"]


async def test_an_abandoned_request_is_not_begun(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher)
    _, gone, last = submit(dispatcher, b"a", b"gone", b"c")
    gone.abandoned = True
    queue.answered(answered(), b"")
    assert gone.answer == ModelAnswer(499, close=True)
    assert queue._worker.bodies == [b"a", b"c"]
    queue.answered(answered(), b"C")
    assert last.answer.body == b"C"


async def test_what_a_dead_worker_had_not_begun_goes_first_elsewhere(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    for _ in range(300):  # so that a worker gets several at once
        queue = make_queue(dispatcher)
        submit(dispatcher, b"x")
        queue.answered(answered(), b"")
        dispatcher.remove(queue)
    queue = make_queue(dispatcher)
    asked = submit(dispatcher, *[bytes([number]) for number in range(10)])
    assert len(queue.calls) == 8
    dispatcher.remove(queue, queue.lost("ended with exit status 3"))
    assert statuses(asked) == [500] + [None] * 9
    assert (
        b"The worker process of the model's code ended with exit status 3" in asked[0].answer.body
    )
    after = make_queue(dispatcher)
    assert after._worker.bodies == [bytes([number]) for number in range(1, 9)]


async def test_requests_wait_while_there_is_no_worker(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=1)
    asked = submit(dispatcher, b"a", b"b")
    assert statuses(asked) == [None, 503]
    queue = make_queue(dispatcher)
    queue.answered(answered(), b"A")
    assert asked[0].answer.body == b"A"


async def test_what_waits_for_a_model_that_is_gone_is_told(make_queue):
    dispatcher = WorkerDispatcher(workers=1, max_waiting=9)
    queue = make_queue(dispatcher)
    asked = submit(dispatcher, b"a", b"b")
    dispatcher.remove(queue, queue.lost("ended"))
    dispatcher.close(ModelAnswer(404))
    asked += submit(dispatcher, b"c")
    await dispatcher.drained()
    assert statuses(asked) == [500, 404, 404]


async def test_a_session_stays_with_the_worker_that_began_it(make_queue):
    dispatcher = WorkerDispatcher(workers=2, max_waiting=1)
    one, two = make_queue(dispatcher), make_queue(dispatcher)

    def ask(session):
        request = ModelRequest("POST", "/", {SESSION: session}, session, lambda _: None)
        dispatcher.submit(request)
        return request

    submit(dispatcher, b"x")
    ask(b"NEW_SESSION")
    header = ("X-Amzn-SageMaker-Session-Id", "abc; Expires=2099-01-01T00:00:00Z")
    two.answered(Answered(7, 200, "", (header,), False, 0.0, False), b"")
    one.answered(answered(), b"")
    asked = [ask(b"abc") for _ in range(3)]
    assert two._worker.bodies == [b"NEW_SESSION", b"abc", b"abc"]
    assert statuses(asked) == [None, None, 503]  # it waits for no other worker, so not for ever
    closed = ("X-Amzn-SageMaker-Closed-Session-Id", "abc")
    two.answered(Answered(7, 200, "", (closed,), False, 0.0, False), b"")
    ask(b"abc")
    assert one._worker.bodies == [b"x", b"abc"]


async def test_a_session_of_a_dead_worker_goes_anywhere(make_queue):
    dispatcher = WorkerDispatcher(workers=2, max_waiting=1)
    one = make_queue(dispatcher)
    dispatcher.learn_session(one, (("x-amzn-sagemaker-session-id", "abc"),))
    dispatcher.remove(one, one.lost("ended"))
    two = make_queue(dispatcher)
    dispatcher.submit(ModelRequest("POST", "/", {SESSION: b"abc"}, b"later", lambda _: None))
    assert two._worker.bodies == [b"later"]


async def test_a_model_of_the_users_code_has_a_slot_for_each_worker():
    assert WorkerDispatcher(workers=3, max_waiting=9).slots == 3


async def test_quick_code_gets_more_requests_than_workers(make_queue):
    dispatcher = WorkerDispatcher(workers=2, max_waiting=1000)
    queue = make_queue(dispatcher)
    for _ in range(300):
        submit(dispatcher, b"x")
        queue.answered(answered(seconds=0.0001), b"")
    assert dispatcher.slots == 16
