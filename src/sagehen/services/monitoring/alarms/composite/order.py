"""The order in which composite alarms are evaluated: children first."""

from collections.abc import Collection, Iterator, Mapping

__all__ = ["evaluation_order"]


def evaluation_order(children: Mapping[str, Collection[str]]) -> list[str]:
    """Returns the alarms of `children`, each after those it names, without those of a cycle."""
    search = _Search(children)
    for name in children:
        search.run(name)
    return search.order


class _Search:
    """Tarjan's algorithm, in linear time and without recursion: rules may be nested deeply."""

    def __init__(self, children: Mapping[str, Collection[str]]) -> None:
        self.order: list[str] = []
        self._children = children
        self._numbers: dict[str, int] = {}
        self._lowest: dict[str, int] = {}
        """the least number of the path that an alarm leads to"""
        self._path: dict[str, None] = {}
        """alarms whose cycle, if any, is not known in full"""

    def run(self, root: str) -> None:
        visits = [] if root in self._numbers else [self._enter(root)]
        while visits:
            name, remaining = visits[-1]
            child = next(remaining, None)
            if child is None:
                visits.pop()
                self._leave(name)
                if visits:
                    self._lower(visits[-1][0], self._lowest[name])
            elif child in self._path:
                self._lower(name, self._numbers[child])
            elif child in self._children and child not in self._numbers:
                visits.append(self._enter(child))

    def _enter(self, name: str) -> tuple[str, Iterator[str]]:
        self._numbers[name] = self._lowest[name] = len(self._numbers)
        self._path[name] = None
        return name, iter(self._children[name])

    def _lower(self, name: str, number: int) -> None:
        self._lowest[name] = min(self._lowest[name], number)

    def _leave(self, name: str) -> None:
        if self._lowest[name] < self._numbers[name]:
            return  # in a cycle with an alarm before it
        members = [self._path.popitem()[0]]
        while members[-1] != name:
            members.append(self._path.popitem()[0])
        if members == [name] and name not in self._children[name]:
            self.order.append(name)
