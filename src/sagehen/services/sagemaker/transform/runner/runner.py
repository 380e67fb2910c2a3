"""Runs one transform job, from its specification to its last message."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from math import inf

import msgspec

from sagehen.base.clock import Clock
from sagehen.base.errors import Invalid, Unavailable
from sagehen.http1.pool import Connector, open_connection
from sagehen.link.upstream import open_upstreams
from sagehen.services.sagemaker.transform.records.batches import Batch
from sagehen.services.sagemaker.transform.runner.attempts import Retries
from sagehen.services.sagemaker.transform.runner.batch_results import Batches, FailureSearch
from sagehen.services.sagemaker.transform.runner.capture import write_manifests
from sagehen.services.sagemaker.transform.runner.errors import JobError, ObjectError
from sagehen.services.sagemaker.transform.runner.instances import Connect, Instances
from sagehen.services.sagemaker.transform.runner.invocation import Invoker
from sagehen.services.sagemaker.transform.runner.listing import InputObject, list_inputs
from sagehen.services.sagemaker.transform.runner.object_plans import ObjectPlans, payload_bytes
from sagehen.services.sagemaker.transform.runner.object_transform import (
    CONCURRENT_READS,
    ObjectResult,
    ObjectTransform,
    Shared,
)
from sagehen.services.sagemaker.transform.runner.outputs import Outputs
from sagehen.services.sagemaker.transform.runner.parameters import (
    ContainerParameters,
    describe,
    request,
    resolve,
)
from sagehen.services.sagemaker.transform.runner.reports import Reports
from sagehen.services.sagemaker.transform.runner.store import ObjectStore
from sagehen.services.sagemaker.transform.runner.streaming import Streams, stream_object
from sagehen.services.sagemaker.transform.runner.tolerance import (
    NAME,
    RecordTolerance,
    parse_tolerance,
)
from sagehen.services.sagemaker.transform.runner.window import Window, window_bytes
from sagehen.services.sagemaker.transform.runner_messages import (
    InstanceAddress,
    RunnerEnded,
    RunnerSettings,
    RunnerSpec,
)

__all__ = ["Runner"]

log = logging.getLogger(__name__)

MAX_PARAMETER_TRIES = 10
"""some 25 s; then a container counts as one without /execution-parameters"""
LISTED_AHEAD = 10_000
"""objects"""
MAX_OBJECTS = 512
"""under way at once"""
OUT_OF_MEMORY = (
    "The job's records need more memory than transform_runner_memory_bytes allows: use smaller "
    "records, fewer MaxConcurrentTransforms, or filters that repeat less."
)

Tell = Callable[[msgspec.Struct], None]
Transform = Callable[[InputObject], Awaitable[ObjectResult]]
_Numbered = tuple[int, InputObject]


class Runner:
    """Runs one job.

    Args:
        tell: sends a message to control.
        connector: reaches the containers of all nodes.
        ask_parameters: of the container at an address; raises Unavailable.
    """

    def __init__(
        self,
        spec: RunnerSpec,
        store: ObjectStore,
        clock: Clock,
        tell: Tell,
        connector: Connector = open_connection,
        connect: Connect | None = None,
        ask_parameters: Callable[[str], Awaitable[ContainerParameters]] | None = None,
    ) -> None:
        self._spec = spec
        self._store = store
        self._clock = clock
        self._reports = Reports(spec, tell)
        self._tell = tell
        self._settings = spec.settings
        self._settings_known = asyncio.Event()
        self._unanswered: Counter[InstanceAddress] = Counter()
        """requests for parameters"""
        self._failed_keys = set(spec.failed)
        """for data capture"""
        self._fatal: BaseException | None = None
        """why the job cannot go on"""
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """an object has ended"""
        self._window = Window()
        self._connector = connector
        self._ask_parameters = ask_parameters or partial(request, connector=connector)
        connect = connect or partial(open_upstreams, connector=connector)
        self.instances = Instances(clock, self._prepare, connect)
        self.outputs = Outputs(store, spec.job_id)
        if self._settings is not None:
            self._settings_known.set()

    async def run(self) -> RunnerEnded:
        """Returns the last message. Raises Unavailable if S3 is away for too long."""
        telling = asyncio.create_task(self._reports.keep_telling(self._clock))
        try:
            ended = await self._run()
        except (JobError, Invalid) as error:
            ended = RunnerEnded(error=getattr(error, "error", "ClientError"), message=str(error))
        except MemoryError:
            ended = RunnerEnded(error="ClientError", message=OUT_OF_MEMORY)
        finally:
            telling.cancel()
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
        self._reports.flush()
        return ended

    def note_wait(self, reason: str) -> None:
        """Tells in the data-log why nothing goes on: the disk may be full."""
        self._reports.log(f"The job waits for S3: {reason}")

    async def _run(self) -> RunnerEnded:
        tolerance = self._tolerance()
        await self._settings_known.wait()
        transform = self._transformer(tolerance)
        inputs: asyncio.Queue[_Numbered | None] = asyncio.Queue(LISTED_AHEAD)
        listing = asyncio.create_task(self._list(inputs))
        try:
            await self._transform_all(inputs, transform)
            await listing
        finally:
            listing.cancel()
            await asyncio.gather(listing, return_exceptions=True)
        return await self._end(tolerance)

    async def _end(self, tolerance: RecordTolerance | None) -> RunnerEnded:
        if self._spec.capture is not None:
            try:
                await write_manifests(
                    self._spec, self._spec.capture, self.outputs, self._failed_keys
                )
            except ObjectError as error:
                raise JobError(error.error, str(error)) from error
        reports = self._reports
        if reports.error is not None:
            return RunnerEnded(error=reports.error)
        failed, records = reports.failed_records, reports.finished_records
        if tolerance is not None and tolerance.is_exceeded(failed, records):
            return RunnerEnded(
                error="ClientError",
                message=f"{failed} of {records} records failed, more than the {tolerance.text} "
                f"that SAGEHEN_TRANSFORM_{NAME} allows. The outputs are complete without them; "
                "the failed records are in the files that end in .errors.jsonl.",
            )
        return RunnerEnded()

    def _tolerance(self) -> RecordTolerance | None:
        """Raises Invalid."""
        value = self._spec.options.get(NAME)
        return parse_tolerance(value) if value is not None else None

    # Settings

    async def _prepare(self, address: InstanceAddress) -> int:
        """Asks an instance for its parameters. Raises Unavailable."""
        try:
            parameters = await self._ask_parameters(address.address)
        except Unavailable:
            self._unanswered[address] += 1
            if self._unanswered[address] < MAX_PARAMETER_TRIES:
                raise
            # A container may end the connection instead of saying 404.
            parameters = ContainerParameters()
        settings = resolve(self._spec, parameters)
        if self._settings is None:
            self._settings = settings
            self._tell(settings)
            self._settings_known.set()
        own = msgspec.structs.replace(self._settings, max_concurrent=settings.max_concurrent)
        self._reports.log(describe(own), address.instance_id)
        return own.max_concurrent

    def _transformer(self, tolerance: RecordTolerance | None) -> Transform:
        """Raises JobError or Invalid."""
        spec, settings = self._spec, self._settings
        assert settings is not None
        plans = self._plans(settings)
        invoker = Invoker(plans.content_type, spec.accept, spec.timeout_seconds)
        retries = Retries(self.instances, self._clock, invoker, spec.max_retries)
        shared = Shared(
            store=self._store,
            outputs=self.outputs,
            window=self._window,
            reports=self._reports,
            batches=Batches(
                retries.answer,
                spec.split_type,
                spec.assemble_with,
                search=self._search(tolerance),
            ),
            plans=plans,
            gunzips=spec.compression == "Gzip",
            output_type=spec.accept,
            large_reads=asyncio.Semaphore(CONCURRENT_READS),
        )
        if plans.streams:
            streams = Streams(retries, spec.assemble_with == "Line", self._connector)
            return lambda item: stream_object(item, shared, streams)
        return lambda item: ObjectTransform(item, shared).run()

    def _search(self, tolerance: RecordTolerance | None) -> FailureSearch | None:
        if tolerance is None:
            return None
        reports = self._reports

        def is_hopeless(found: int, batch: Batch) -> bool:
            return tolerance.is_hopeless(found, self._expected_records(batch))

        return FailureSearch(reports.failed_records, is_hopeless)

    def _expected_records(self, batch: Batch) -> float:
        """Guesses how many records the job has, if all are as large as those of a batch."""
        if self._reports.bytes_listed is None or self._spec.compression == "Gzip":
            return inf
        return self._reports.bytes_listed * batch.records / max(len(batch.payload), 1)

    def _plans(self, settings: RunnerSettings) -> ObjectPlans:
        """Raises JobError or Invalid."""
        try:
            return ObjectPlans(self._spec, settings)
        except JobError as error:
            self._reports.log(str(error))
            raise JobError(error.error, "") from error

    # Objects

    async def _list(self, inputs: asyncio.Queue[_Numbered | None]) -> None:
        """The queue ends in any case. Raises JobError or Unavailable."""
        try:
            await self._list_into(inputs)
        except Exception:  # The job would wait for ever.
            await inputs.put(None)
            raise
        self._reports.listing_ended()
        await inputs.put(None)

    async def _list_into(self, inputs: asyncio.Queue[_Numbered | None]) -> None:
        spec = self._spec
        through = spec.done_through.encode() if spec.done_through is not None else None
        done = set(spec.done)
        number = 0
        async with aclosing(list_inputs(spec, self._store)) as items:
            async for item in items:
                self._reports.listed(item.size)
                key = item.source.key
                if key in done or (through is not None and key.encode() <= through):
                    self._reports.was_finished(number, item)
                else:
                    await inputs.put((number, item))
                number += 1

    async def _transform_all(
        self, inputs: asyncio.Queue[_Numbered | None], transform: Transform
    ) -> None:
        while self._fatal is None and (entry := await inputs.get()) is not None:
            task = asyncio.create_task(self._transform(*entry, transform))
            self._running.add(task)
            task.add_done_callback(self._ended)
            while len(self._running) >= self._most_objects() and self._fatal is None:
                self._changed.clear()
                await self._changed.wait()
        while self._running and self._fatal is None:
            self._changed.clear()
            await self._changed.wait()
        if self._fatal is not None:
            raise self._fatal

    async def _transform(self, number: int, item: InputObject, transform: Transform) -> None:
        try:
            result = await transform(item)
        except ObjectError as error:
            if self._spec.capture is not None:
                self._failed_keys.add(item.source.key)
            self._reports.failed(number, item, error)
        else:
            self._reports.finished(number, item, result.size, result.records, result.failed_records)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal = self._fatal or error
        self._changed.set()

    def _most_objects(self) -> int:
        """Small objects wait for S3 longer than for an instance: more of them are under way than
        there are slots."""
        slots = self.instances.slots
        settings = self._settings
        if settings is not None:
            self._window.limit = window_bytes(slots, payload_bytes(settings))
        return min(2 * slots + 8, MAX_OBJECTS)
