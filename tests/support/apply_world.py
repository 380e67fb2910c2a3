"""A world for `sagehen apply` without a server: resources in a dict, and a crash wherever a test
wants one."""

from typing import Any

from sagehen.apply.resources import ActualState, ResourceKind
from sagehen.base.errors import AlreadyExists, Conflict, NotFound


class Crash(BaseException):
    """`kill -9`, as near as it gets in one process."""


class World:
    """What there is, by type and name; an `Aws` as well, for what the runs ask of that."""

    url = "http://127.0.0.1:9000"
    region = "eu-west-1"
    account_id = "123456789012"
    partition = "aws"

    def __init__(self) -> None:
        self.things: dict[tuple[str, str], dict[str, Any]] = {}
        self.stacks: dict[str, dict[str, Any]] = {}
        self.busy: dict[tuple[str, str], int] = {}
        """How often a look will find it busy."""
        self.done: list[str] = []
        self.steps = 0
        self.crash_at = -1
        """In half steps: an even one is before a request has its effect, an odd one behind it."""
        self._subscriptions = 0

    def change(self, effect, *args):
        """A request: done, unless this is where it ends."""
        self._crash(2 * self.steps)
        answer = effect(*args)
        self.steps += 1
        self._crash(2 * self.steps - 1)
        return answer

    def _crash(self, half_step: int) -> None:
        # Whoever is dead does nothing more, such as giving a claim back.
        if 0 <= self.crash_at <= half_step:
            raise Crash

    # What `Aws` has

    def own(self, method, *path, query=None, body=None):
        if method == "GET":
            if path[1] not in self.stacks:
                raise NotFound(f"There is no stack {path[1]}.")
            return self.stacks[path[1]]
        return self.change(self._write, method, path[1], query, body)

    def _write(self, method, name, query, body):
        kept = self.stacks.get(name, {"version": 0, "claim": None})
        wanted = body or query
        if kept["version"] != int(wanted["version"]):
            raise Conflict("the version")
        claim = kept["claim"]
        if claim and claim["holder"] not in (wanted["holder"], wanted.get("over")):
            raise Conflict("the claim")
        if method == "DELETE":
            del self.stacks[name]
            return {}
        mine = {"holder": wanted["holder"]} if wanted["claim_seconds"] else None
        self.stacks[name] = {
            "name": name,
            "version": kept["version"] + 1,
            "claim": mine,
            "content": wanted["content"],
        }
        return self.stacks[name]

    # What the kinds do

    def look(self, kind, name, properties):
        if not name and kind.name_property is None:
            name = self._named(kind, properties)
        key = (kind.type, name)
        if key not in self.things:
            return None
        left = self.busy.get(key, 0)
        self.busy[key] = max(0, left - 1)
        status = "busy" if left else "ready"
        return ActualState(name=name, properties=self.things[key], status=status)

    def create(self, kind, name, properties):
        if kind.name_property is None:
            self._subscriptions += 1
            name = f"arn:{self._subscriptions}"
        if (kind.type, name) in self.things:
            raise AlreadyExists(f"{name} is there")
        self._put("create", kind, name, properties)

    def update(self, kind, live, before, after):
        assert all(before.get(name) == after.get(name) for name in kind.identity(after))
        self._put("update", kind, live.name, after)

    def delete(self, kind, name):
        self.done.append(f"delete {name}")
        self.things.pop((kind.type, name), None)

    def _put(self, verb, kind, name, properties):
        self.done.append(f"{verb} {name}")
        self.things[kind.type, name] = properties
        if kind.type.endswith("Endpoint"):
            self.busy[kind.type, name] = 2

    def _named(self, kind, properties):
        for (other, name), found in self.things.items():
            if other == kind.type and kind.identity(found) == kind.identity(properties):
                return name
        return ""


def of_world(kind: ResourceKind) -> ResourceKind:
    """The type of resource, of a World."""
    if kind.is_recorded_only:
        return kind

    class Fake(type(kind)):
        def look(self, aws, name, properties):
            return aws.look(self, name, properties)

        def create(self, aws, name, properties):
            aws.change(aws.create, self, name, properties)

        def update(self, aws, live, before, after):
            aws.change(aws.update, self, live, before, after)

        def delete(self, aws, name):
            return aws.change(aws.delete, self, name)

    return Fake()
