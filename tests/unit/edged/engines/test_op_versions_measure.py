"""What measures a runtime works where the oldest releases do: on Python 3.9, the newest that they were built for."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent.parent
# Of Python's own library, all of it in the documentation of 3.9 (https://docs.python.org/3.9/library/).
KNOWN = {
    "argparse", "argparse.ArgumentParser", "collections.abc.Iterable", "collections.abc.Iterator",
    "collections.abc.Mapping", "contextlib.suppress", "ctypes", "ctypes.CDLL", "dataclasses.dataclass",
    "enum.Enum", "enum.IntEnum", "functools", "functools.cache", "importlib.import_module",
    "importlib.util.find_spec", "itertools", "itertools.count", "json", "json.dumps", "json.loads", "os",
    "os.MFD_CLOEXEC", "os.O_RDONLY", "os.SEEK_SET", "os.close", "os.devnull", "os.dup", "os.environ", "os.getpid",
    "os.getppid", "os.kill", "os.killpg", "os.lseek", "os.memfd_create", "os.open", "os.pathsep", "os.read",
    "pathlib.Path", "re", "re.compile", "select", "select.POLLIN", "select.poll", "signal", "signal.SIGHUP",
    "signal.SIGINT", "signal.SIGKILL", "signal.SIGTERM", "signal.Signals", "stat", "stat.S_ISBLK", "stat.S_ISCHR",
    "stat.S_ISFIFO", "stat.S_ISLNK", "stat.S_ISSOCK", "struct", "struct.pack", "struct.pack_into", "subprocess",
    "subprocess.DEVNULL", "subprocess.PIPE", "subprocess.Popen", "subprocess.TimeoutExpired", "sys", "sys.argv",
    "sys.executable", "sys.exit", "sys.stdout", "tempfile", "tempfile.TemporaryFile", "time", "time.monotonic",
    "types.ModuleType", "typing.Any", "typing.IO", "typing.Protocol", "typing.TYPE_CHECKING",
}  # fmt: skip
# Arguments that 3.9 does not take.
NEW_ARGUMENTS = {("zip", "strict"), ("dataclass", "slots"), ("dataclass", "kw_only"), ("dataclass", "match_args")}


def sources() -> Iterator[tuple[str, str]]:
    """Path and text of every module of ours that a measurement imports, found by importing them."""
    look = (
        "import sys, edged.engines.op_versions_measure, edged.engines.op_versions_probe\n"
        "print(*(m.__file__ for name, m in sorted(sys.modules.items()) if name.split('.')[0] == 'edged'), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    for path in done.stdout.split():
        yield path, Path(path).read_text(encoding="utf-8")


def used(tree: ast.Module) -> Iterator[str]:
    """Every name that is taken from Python's own library: `json`, `json.dumps`."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    yield from modules.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


def new_arguments(tree: ast.Module) -> set[tuple[str, str | None]]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    given = {(call.func.id, word.arg) for call in calls if isinstance(call.func, ast.Name) for word in call.keywords}
    return given & NEW_ARGUMENTS


def test_the_measurement_runs_on_python_39() -> None:
    """Its syntax, what it imports and the arguments it gives: nothing that came later. A new name is looked up first,
    and then added here."""
    found = {path: ast.parse(text, path, feature_version=(3, 9)) for path, text in sources()}
    assert {"op_versions_measure.py", "op_versions_probe.py", "tflite_runtime.py"} <= {
        Path(path).name for path in found
    }
    library = {n for tree in found.values() for n in used(tree) if not n.startswith(("edged", "__future__"))}
    assert library - KNOWN == set()
    for path, tree in found.items():
        assert new_arguments(tree) == set(), path
