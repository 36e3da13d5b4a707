"""What a result was made of, as short hashes: our code without its comments, assets, robot models, any file.

Snakemake tracks neither imported modules nor a changed file with an old date; rules take these hashes as params, so a
change makes stale what it should, and nothing else. No packages: it is read whenever the Snakefile is parsed.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from q1pipe.files import write_json

PACKAGE = Path(__file__).resolve().parent
LENGTH = 12  # hex digits

# Modules that settle no result by their code: settings are tracked by value, the others only say or record things.
UNTRACKED = frozenset(f"q1pipe.{name}" for name in ("config", "errors", "log", "provenance"))

Scanned = tuple[str, list[str]]  # hash of a module ("" when it is empty), and the names that it imports
_scanned: dict[str, Scanned] = {}  # by content
_recalled: dict[str, Scanned] = {}


def code_of(*modules: str) -> tuple[str, ...]:
    """``module@hash`` of each module and all of q1pipe that it imports, also inside functions; sorted.

    Blind to comments, docstrings and layout, to imports for type checkers only, and to the Python version. Star
    arguments of a rule's ``params``, so that a dry run names the modules that changed.

    Raises:
        FileNotFoundError: a module is not part of q1pipe.
    """
    todo = list(modules)
    hashes: dict[str, str] = {}
    for module in modules:
        if _file(module) is None:
            raise FileNotFoundError(f"{module} is not a module of {PACKAGE}")
    while todo:
        module = todo.pop()
        path = None if module in hashes or _untracked(module) else _file(module)
        if path is not None:
            stat = path.stat()
            hashes[module], imports = _scan(module, path, stat.st_size, stat.st_mtime_ns)
            todo += imports
    return tuple(f"{module}@{digest}" for module, digest in sorted(hashes.items()) if digest)


def recall(path: Path) -> None:
    """Know what `remember` wrote, by the content of modules; all is found anew where the file is not there or broken.

    Reading all modules takes a third of a second, which is a sixth of a dry run.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads(path.read_text(encoding="utf-8"))
        _recalled.update({key: (digest, imports) for key, (digest, imports) in found.items()})


def remember(path: Path) -> None:
    """Write what was found in modules so far, unless it is what was recalled, or the place is not to be written to."""
    if _scanned.keys() != _recalled.keys():
        with contextlib.suppress(OSError):
            write_json(path, _scanned)


def _untracked(module: str) -> bool:
    return ".".join(module.split(".")[:2]) in UNTRACKED


def files_of(folder: str | Path) -> tuple[str, ...]:
    """``path@hash`` of each file below a folder, paths relative to it; sorted."""
    folder = Path(folder)
    files = (p for p in folder.rglob("*") if p.is_file())
    return tuple(sorted(f"{p.relative_to(folder).as_posix()}@{file_sha(p)}" for p in files))


def file_sha(path: str | Path) -> str:
    """Hash of a file's content, 12 hex digits.

    Raises:
        OSError: the file cannot be read.
    """
    stat = Path(path).stat()
    return _file_sha(str(path), stat.st_size, stat.st_mtime_ns)


def mjcf_sha(path: str | Path) -> str:
    """Hash of an MJCF and of the files that it includes or refers to, 12 hex digits.

    Raises:
        OSError: the MJCF itself cannot be read; files it refers to may be missing.
    """
    path = Path(path)
    digest = hashlib.sha256(path.read_bytes())
    for used in sorted(_mjcf_files(path)):
        digest.update(f"{used.name}@{file_sha(used)}".encode())
    return digest.hexdigest()[:LENGTH]


def _file(module: str) -> Path | None:
    package, *parts = module.split(".")
    if package != PACKAGE.name:
        return None
    stem = PACKAGE.joinpath(*parts)
    candidates = (stem / "__init__.py", stem.with_name(stem.name + ".py"))
    return next((c for c in candidates if c.is_file()), None)


@cache
def _scan(module: str, path: Path, size: int, mtime_ns: int) -> Scanned:
    """What is in a module; size and time are for the cache."""
    source = path.read_bytes()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    key = hashlib.sha256(b"\0".join((_own_source(), package.encode(), source))).hexdigest()
    if key not in _scanned:
        _scanned[key] = _recalled.get(key) or _read(source, package)
    return _scanned[key]


def _read(source: bytes, package: str) -> Scanned:
    tree = ast.parse(source)
    canonical = _canonical(tree)
    digest = hashlib.sha256(repr(canonical).encode()).hexdigest()[:LENGTH] if len(canonical) > 1 else ""
    return digest, sorted(set(_imports(tree, package)))


@cache
def _own_source() -> bytes:
    """This module's: after a change of it nothing is recalled."""
    return Path(__file__).read_bytes()


def _canonical(node: object) -> tuple[object, ...] | str:
    """A syntax tree as nested tuples: no positions, no docstrings, no empty fields (they differ by version)."""
    if isinstance(node, list):
        return tuple(map(_canonical, node))
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    fields.pop("kind", None)  # the u of u"text"
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        fields["body"] = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    kept = ((name, value) for name, value in sorted(fields.items()) if value is not None and value != [])
    return (type(node).__name__, *((name, _canonical(value)) for name, value in kept))


def _imports(node: ast.AST, package: str) -> Iterator[str]:
    """Names of our modules, and names in them that may be modules, that are imported anywhere below a node."""
    for child in _children(node):
        if isinstance(child, ast.Import):
            names: Iterable[str] = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            above = package.rsplit(".", child.level - 1)[0] if child.level else ""
            base = ".".join(part for part in (above, child.module) if part)
            names = [base, *(f"{base}.{alias.name}" for alias in child.names)]
        else:
            yield from _imports(child, package)
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == PACKAGE.name:
                yield from (".".join(parts[: i + 1]) for i in range(len(parts)))  # packages run when their modules do


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
        return iter(node.orelse)
    return ast.iter_child_nodes(node)


@cache
def _file_sha(path: str, size: int, mtime_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:LENGTH]


def _mjcf_files(path: Path) -> set[Path]:
    """Existing files that an MJCF, and the MJCFs that it includes, name: meshes, height fields, textures."""
    todo, seen = [path], {path}
    elements: list[ElementTree.Element] = []
    while todo:
        try:
            new = list(ElementTree.fromstring(todo.pop().read_bytes()).iter())
        except ElementTree.ParseError:
            continue  # MuJoCo will say what is wrong with it
        included = {path.parent / e.get("file", "") for e in new if e.tag == "include"} - seen
        todo += (p for p in included if p.is_file())
        seen |= included
        elements += new
    # Folders that the compiler element names hold for all files; which of them for which kind of file is not looked at.
    folders = {"", *(e.get(kind, "") for e in elements for kind in ("assetdir", "meshdir", "texturedir"))}
    named = {path.parent / folder / file for e in elements if (file := e.get("file")) for folder in folders}
    return {p for p in named if p.is_file()} - {path}
