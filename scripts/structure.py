"""Prints figures of the source tree's structure, a column for each checkout.

    python3 scripts/structure.py [CHECKOUT ...]

Without a checkout, the one that this script is in. Migrations are left out.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SHARED = ("base", "frame")
"""Packages that every other one imports; imports of them do not count as leaving a package."""
SMALL = 100
LONG_FUNCTION = 50
WORD = re.compile(r"[^\W\d_][\w'’-]*")


@dataclass(frozen=True)
class Module:
    name: str
    """Below the package, such as `gateway.routing.routes`."""
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @property
    def folder(self) -> Path:
        return self.path.parent


class Tree:
    """One checkout's package and unit tests."""

    def __init__(self, checkout: Path) -> None:
        source = checkout / "src" / "sagehen"
        self._tests = checkout / "tests" / "unit"
        self.modules: dict[str, Module] = {}
        for path in sorted(source.rglob("*.py")):
            if "migrations" not in path.parts:
                parts = path.relative_to(source).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self.modules[name] = Module(name, path)

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The modules that each module imports, anywhere in it."""
        return {name: set(self._imports_of(module)) for name, module in self.modules.items()}

    def _imports_of(self, module: Module) -> Iterator[str]:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sagehen"):
                base = (node.module or "").removeprefix("sagehen").removeprefix(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}".removeprefix(".")
                    imported = inner if inner in self.modules else base
                    if imported in self.modules and imported != module.name:
                        yield imported

    def figures(self) -> dict[str, str]:
        modules = list(self.modules.values())
        sizes = [module.lines for module in modules if not module.is_package]
        functions = [node for module in modules for node in _functions(module.tree)]
        return {
            "modules (with __init__)": f"{len(sizes)} ({len(modules)})",
            "lines per module: median, most": f"{statistics.median(sizes):.0f}, {max(sizes)}",
            "modules over 400 lines": str(sum(size > 400 for size in sizes)),
            f"under {SMALL} lines, one importer, same folder": self._splinters(),
            "class names in more than one module": str(self._repeated_classes()),
            "words of prose per line of code": f"{self._prose():.2f}",
            "imports inside a top-level package": f"{self._inside():.1%}",
            f"functions over {LONG_FUNCTION} lines": str(
                sum((node.end_lineno or 0) - node.lineno >= LONG_FUNCTION for node in functions)
            ),
            "broad excepts": str(sum(_broad_excepts(module.tree) for module in modules)),
            "TODO": str(sum(module.text.count("TODO") for module in modules)),
            "modules with a unit test at their path": f"{self._mirrored():.1%}",
        }

    def _splinters(self) -> str:
        importers = defaultdict(set)
        for name, imported in self.imports.items():
            for other in imported:
                importers[other].add(name)
        count = 0
        for name, module in self.modules.items():
            if not module.is_package and module.lines < SMALL and len(importers[name]) == 1:
                (importer,) = importers[name]
                count += self.modules[importer].folder == module.folder
        return f"{count} ({count / len(self.modules):.1%})"

    def _repeated_classes(self) -> int:
        modules_by_class = defaultdict(set)
        for module in self.modules.values():
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules_by_class[node.name].add(module.name)
        return sum(len(found) > 1 for found in modules_by_class.values())

    def _prose(self) -> float:
        words = code = 0
        for module in self.modules.values():
            prose, lines = _prose_and_code(module)
            words, code = words + prose, code + lines
        return words / code

    def _inside(self) -> float:
        pairs = [
            (self.modules[name].package, self.modules[other].package)
            for name, imported in self.imports.items()
            for other in imported
            if other and self.modules[other].package not in SHARED
        ]
        return sum(own == other for own, other in pairs) / len(pairs)

    def _mirrored(self) -> float:
        modules = [module for module in self.modules.values() if not module.is_package]
        tested = 0
        for module in modules:
            *folders, last = module.name.split(".")
            tested += (self._tests.joinpath(*folders) / f"test_{last}.py").exists()
        return tested / len(modules)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _broad_excepts(tree: ast.Module) -> int:
    return sum(
        isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        for node in ast.walk(tree)
    )


def _prose_and_code(module: Module) -> tuple[int, int]:
    """Words in docstrings, attribute strings and comments; lines that have anything else."""
    words, prose_lines = 0, set()
    for node in ast.walk(module.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                words += len(WORD.findall(text))
                prose_lines |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            words += len(WORD.findall(token.string))
        elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            code |= set(range(token.start[0], token.end[0] + 1))
    return words, len(code - prose_lines)


def main() -> None:
    checkouts = [Path(given) for given in sys.argv[1:]] or [Path(__file__).parents[1]]
    columns = [Tree(checkout).figures() for checkout in checkouts]
    for name in columns[0]:
        print(f"{name:48}", *(f"{column[name]:>16}" for column in columns))


if __name__ == "__main__":
    main()
