"""The route table as this process uses it: each endpoint's instances with their connections."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sagehen.clock import Clock
from sagehen.domain.routes import BOARD_COLUMNS, InstanceRoute, RouteTable, VariantRoute
from sagehen.gateway.board import Board
from sagehen.gateway.choose import rank_by_affinity
from sagehen.gateway.counters import Counters, VariantCounters
from sagehen.gateway.line import Line
from sagehen.gateway.pool import Pool

__all__ = ["Endpoint", "Instance", "Routes", "Variant"]

log = logging.getLogger(__name__)

FRESH_SECONDS = 0.001
"""How old what is known of the file may be when a request asks. Looking costs some 2 µs; whoever
was told that an endpoint is in service, or has another weight, finds it so at once."""
RANKS_KEPT = 10_000
"""Models per variant whose order of instances is remembered."""

_InstanceKey = tuple[str, str, str, int | None]
"""(id, address, column of the board)."""
_LineKey = tuple[str, str, bool]
"""(endpoint, variant, whether it is a shadow): a copy must not find itself in the line of the
production variant that its shadow has become."""


class Instance:
    """One instance; it stays the same object for as long as it is in the table."""

    __slots__ = (
        "_board",
        "_own",
        "address",
        "column",
        "has_left",
        "instance_id",
        "pool",
        "run_id",
        "slots",
    )

    def __init__(self, route: InstanceRoute, clock: Clock, board: Board) -> None:
        self.instance_id = route.instance_id
        self.run_id = route.run_id
        self.address = route.address
        self.pool = Pool(route.address, clock)
        self._board = board
        column = route.board_column
        self.column = column if column is not None and 0 <= column < BOARD_COLUMNS else None
        """Of the board; None where it has none, or not any more."""
        self.slots = max(1, route.slots)
        self._own = 0
        """Requests of this process that it works on."""
        self.has_left = False
        """It is in no table any more."""

    @property
    def outstanding(self) -> int:
        """Requests that it works on: of all gateways, where it has a column of the board."""
        column = self.column
        return self._own if column is None else self._board.outstanding(column)

    @property
    def is_free(self) -> bool:
        """It may get one more request."""
        return self.outstanding < self.slots

    def take(self) -> None:
        """It gets one more request."""
        self._own += 1
        if self.column is not None:
            self._board.take(self.column)

    def give(self) -> None:
        """It has done with a request."""
        self._own -= 1
        if self.column is not None:
            self._board.give(self.column)

    def leave(self) -> None:
        """It is in no table any more. What it still works on goes on, counted here alone: its
        column may be another instance's now."""
        self.has_left = True
        if self.column is not None:
            self._board.give(self.column, self._own)
            self.column = None
        self.pool.close()


class Variant:
    """One production or shadow variant, as of one version of the table."""

    __slots__ = (
        "_ranks",
        "counters",
        "instance_share",
        "instances",
        "invoked_field",
        "line",
        "route",
    )

    def __init__(
        self,
        route: VariantRoute,
        instances: tuple[Instance, ...],
        counters: VariantCounters,
        line: Line,
    ) -> None:
        self.route = route
        self.instances = instances
        self.instance_share = 1 / len(instances) if instances else 0.0
        """What a request adds to InvocationsPerInstance."""
        self.counters = counters
        self.line = line
        """Where requests wait for a slot; it knows the variant as of the table in force."""
        self.invoked_field = b"x-Amzn-Invoked-Production-Variant: %b\r\n" % route.name.encode()
        self._ranks: dict[str, list[Instance]] = {}

    def ranked(self, model: str) -> list[Instance]:
        """The instances, the one to hold `model` first."""
        ranks = self._ranks.get(model)
        if ranks is None:
            if len(self._ranks) >= RANKS_KEPT:
                self._ranks.clear()
            order = rank_by_affinity([one.instance_id for one in self.instances], model)
            ranks = self._ranks[model] = [self.instances[place] for place in order]
        return ranks


class Endpoint:
    """One endpoint, as of one version of the table."""

    __slots__ = ("name", "shadow", "shadow_share", "variants", "weights")

    def __init__(
        self, name: str, variants: tuple[Variant, ...], shadow: Variant | None = None
    ) -> None:
        self.name = name
        self.variants = variants
        self.weights = tuple(variant.route.weight for variant in variants)
        self.shadow = shadow
        """Gets copies of requests, and is no variant that can be asked for."""
        self.shadow_share = 0.0 if shadow is None else _share(shadow.route.weight, self.weights)
        """Of the requests, how many are copied."""

    def variant(self, name: str) -> Variant | None:
        for variant in self.variants:
            if variant.route.name == name:
                return variant
        return None


class Routes:
    """Follows the file that control writes; what was read last stays in force without it."""

    def __init__(self, file: Path, counters: Counters, clock: Clock, board: Board) -> None:
        self._file = file
        self._counters = counters
        self._clock = clock
        self._board = board
        self.version = 0
        """Of the table in force: grows with each change."""
        self._looked_at = 0.0
        self._seen: tuple[int, int, int] | None = None
        self._endpoints: dict[str, Endpoint] = {}
        self._instances: dict[_InstanceKey, Instance] = {}
        self._lines: dict[_LineKey, Line] = {}
        self._leaving: list[Pool] = []

    def get(self, endpoint_name: str) -> Endpoint | None:
        if self._clock.monotonic() - self._looked_at > FRESH_SECONDS:
            self.refresh()
        return self._endpoints.get(endpoint_name)

    def instances(self) -> Iterable[Instance]:
        return self._instances.values()

    def pools(self) -> list[Pool]:
        """Those of all instances, and of those that have left and still work on something."""
        return [one.pool for one in self._instances.values()] + self._leaving

    @property
    def queued(self) -> int:
        """Requests of this process that wait for a slot."""
        return sum(line.length for line in self._lines.values())

    def refresh(self) -> bool:
        """Read the file if it has changed; whether the table in force is another one now."""
        self._looked_at = self._clock.monotonic()
        try:
            status = os.stat(self._file)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return False
            # A file that makes no sense is not looked at again, or told of, until it is replaced.
            self._seen = seen
            table = msgspec.json.decode(self._file.read_bytes(), type=RouteTable)
        except FileNotFoundError:
            return False
        except (OSError, msgspec.DecodeError) as error:
            log.warning("The route table cannot be read and the last one stays: %s", error)
            return False
        self._apply(table)
        return True

    def _apply(self, table: RouteTable) -> None:
        self.version += 1
        before, self._instances = self._instances, {}
        lines, self._lines = self._lines, {}
        self._endpoints = {
            name: Endpoint(
                name,
                tuple(self._variant(name, variant, before, lines) for variant in route.variants),
                self._variant(name, route.shadow, before, lines, True) if route.shadow else None,
            )
            for name, route in table.routes.items()
            if route.variants
        }
        self._counters.keep_only(
            {(name, one.name) for name, route in table.routes.items() for one in route.all_variants}
        )
        self._leaving = [pool for pool in self._leaving if not pool.is_done]
        for key, instance in before.items():
            if key not in self._instances:
                instance.leave()
                self._leaving.append(instance.pool)
        for endpoint in self._endpoints.values():
            for variant in (*endpoint.variants, *filter(None, (endpoint.shadow,))):
                variant.line.follow(variant)
        for line_key, line in lines.items():
            if line_key not in self._lines:
                line.end()

    def _variant(
        self,
        endpoint: str,
        route: VariantRoute,
        before: dict[_InstanceKey, Instance],
        lines: dict[_LineKey, Line],
        is_shadow: bool = False,
    ) -> Variant:
        instances = []
        for place in route.instances:
            key = (place.instance_id, place.run_id, place.address, place.board_column)
            instance = self._instances.get(key) or before.get(key)
            instance = instance or Instance(place, self._clock, self._board)
            # It may have become quicker or slower, and is the same all the same.
            instance.slots = max(1, place.slots)
            self._instances[key] = instance
            instances.append(instance)
        line_key = (endpoint, route.name, is_shadow)
        line = self._lines[line_key] = lines.get(line_key) or Line(self._board)
        return Variant(route, tuple(instances), self._counters.of(endpoint, route.name), line)


def _share(weight: float, weights: tuple[float, ...]) -> float:
    total = sum(weights)
    return 1.0 if weight >= total else weight / total
