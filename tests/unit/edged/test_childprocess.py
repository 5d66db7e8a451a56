"""Children of ours find our packages and nothing else, and their end is told in one way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.brokers import eventually

import edged
from edged import childprocess
from edged.childprocess import NoAnswerError
from edged.limits import Limits, Watch

SOURCE = Path(edged.__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the import path, for modules that a test writes."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def answer(folder: Path, source: str, *args: str, timeout_s: float = 30) -> dict[str, object]:
    (folder / "answering.py").write_text(source)
    with childprocess.start_answering("answering", *args) as child:
        return childprocess.answer(child, timeout_s)


def test_the_last_line_is_the_answer(folder: Path) -> None:
    """Arguments arrive, other words before the answer do no harm, and there is nothing to read."""
    source = "import json, sys\nprint('noise')\nprint(json.dumps({'args': sys.argv[1:], 'in': sys.stdin.read()}))"
    assert answer(folder, source, "a b", "c") == {"args": ["a b", "c"], "in": ""}


def test_what_is_given_arrives_whole(folder: Path) -> None:
    """Also what is longer than an argument may be, and than a pipe holds: the child need not read it at once."""
    source = "import json, sys, time\ntime.sleep(0.1)\ntext = sys.stdin.read()\nprint(json.dumps({'in': len(text)}))"
    (folder / "answering.py").write_text(source)
    with childprocess.start_answering("answering", given="x" * 3_000_000) as child:
        assert childprocess.answer(child, 30) == {"in": 3_000_000}


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "print('{\"available\"')",
        "print('[1]')",
        "print('x' * 10)\nprint('[' * 100_000)",
        "import os\nif os.fork():\n    os._exit(0)\nimport time\ntime.sleep(0.3)\nprint('{}')",
    ],
)
def test_a_good_end_without_an_answer_is_none(folder: Path, source: str) -> None:
    """A library that calls exit(0) or goes into the background, and one that prints something else last."""
    with pytest.raises(NoAnswerError, match=r"^ended without an answer$") as caught:
        answer(folder, source)
    assert caught.value.code == 0


def test_the_last_words_of_one_without_an_answer_are_told(folder: Path) -> None:
    """And what it was doing."""
    (folder / "answering.py").write_text("import sys\nprint('no licence', file=sys.stderr)\nsys.exit(0)")
    child = childprocess.start_answering("answering")
    with child, pytest.raises(NoAnswerError, match=r"^ended without an answer while it was probed: no licence$"):
        childprocess.guarded_answer(child, Strict(1000), "it was probed")


def test_what_a_child_writes_is_not_collected(folder: Path) -> None:
    """A driver that writes 200 MB to both streams is read as fast as it writes, and costs this process nothing."""
    source = (
        "import os\nfor _ in range(3200):\n    os.write(1, b'x' * 32768)\n    os.write(2, b'y' * 32768)\n"
        "os.write(1, b'\\n{\"a\": 1}\\n')\nos.write(2, b'\\nenough\\n')"
    )
    (folder / "answering.py").write_text(source)
    asking = (
        "from pathlib import Path\nfrom edged import childprocess\n"
        "with childprocess.start_answering('answering') as child:\n"
        "    assert childprocess.answer(child, 60) == {'a': 1}\n"
        # ru_maxrss would be that of the process that forked it, if that was larger.
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", asking], check=True, cwd=SOURCE, capture_output=True, text=True)
    assert int(done.stdout) < 80 << 10  # KiB
    with pytest.raises(NoAnswerError, match=r"^ended with 3: enough$"):
        answer(folder, source + "\nraise SystemExit(3)")


def test_one_that_never_stops_writing_is_late_all_the_same(folder: Path) -> None:
    """The time is looked at between what comes."""
    with pytest.raises(NoAnswerError, match="was not done"):
        answer(folder, "import os\nwhile True:\n    os.write(2, b'y' * 32768)", timeout_s=0.3)


def test_a_child_without_output_is_waited_for(folder: Path) -> None:
    """It closed what it writes to: its end is still its own, and its time too."""
    closed = "import os, time\nos.closerange(1, 3)\ntime.sleep({})\nos._exit(3)"
    with pytest.raises(NoAnswerError, match=r"^ended with 3$"):
        answer(folder, closed.format(0.3))
    with pytest.raises(NoAnswerError, match="was not done"):
        answer(folder, closed.format(60), timeout_s=0.3)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS"])
def test_a_death_by_signal_has_its_name(folder: Path, name: str) -> None:
    """A native crash, raised on purpose."""
    with pytest.raises(NoAnswerError, match=f"was killed by {name}$") as caught:
        answer(folder, f"import os, signal\nos.kill(os.getpid(), signal.{name})")
    assert caught.value.code == -getattr(signal, name)


def test_a_bad_end_has_status_and_last_words(folder: Path) -> None:
    """The last line of standard error, blank lines left out."""
    with pytest.raises(NoAnswerError, match=r"^ended with 3: no memory$") as caught:
        answer(folder, "import sys\nsys.stderr.write('one\\nno memory\\n\\n')\nsys.exit(3)")
    assert (caught.value.code, caught.value.said) == (3, "no memory")


def test_a_child_that_is_not_done_in_time_is_ended(folder: Path) -> None:
    """Waiting is bounded, and nothing goes on running."""
    (folder / "answering.py").write_text("import time\ntime.sleep(60)")
    with childprocess.start_answering("answering") as child:
        with pytest.raises(NoAnswerError, match="was not done after 0 s") as caught:
            childprocess.answer(child, 0.2)
        assert child.returncode == -signal.SIGKILL
    assert caught.value.code is None


@pytest.mark.parametrize(
    ("code", "said", "while_", "expected"),
    [
        (-11, "ignored", "", "was killed by SIGSEGV"),
        (-9, "", "converting", "was killed by SIGKILL (most often: out of memory) while converting"),
        (-60, "", "", "was killed by signal 60"),  # a real-time signal without a name
        (1, "no such op", "loading", "ended with 1 while loading: no such op"),
        (3, "", "", "ended with 3"),
    ],
)
def test_words_for_an_end(code: int, said: str, while_: str, expected: str) -> None:
    """Status or signal, what it was doing, what it said last."""
    assert childprocess.ended(code, said, while_) == expected


TELL = "import json, yaml, edged\nprint(json.dumps({'edged': edged.__file__, 'yaml': yaml.__file__}))"


def test_the_working_directory_cannot_stand_in_for_a_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own yaml.py and edged/ in the directory where the command is typed are not what a child imports."""
    here = folder / "here"
    (here / "edged").mkdir(parents=True)
    for file in (here / "yaml.py", here / "edged" / "__init__.py"):
        file.write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(here)
    # Empty entries stand for the working directory too.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(folder), ""]))
    assert answer(folder, TELL)["edged"] == edged.__file__


def test_a_relative_entry_means_what_it_meant_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`PYTHONPATH=src` was given from where the command was typed, not from where the child runs."""
    (folder / "src").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", "src")
    assert answer(folder / "src", "print('{}')") == {}


def test_a_source_tree_works_without_being_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m edged` inside a checkout: the child gets the same packages, though it does not run there."""
    tree = tmp_path / "tree"
    shutil.copytree(SOURCE / "edged", tree / "edged", ignore=shutil.ignore_patterns("__pycache__", "configs"))
    (tree / "tell.py").write_text("import edged, json\nprint(json.dumps({'at': edged.__file__}))")
    code = (
        "from edged import childprocess\n"
        "with childprocess.start_answering('tell') as child: print(childprocess.answer(child, 30)['at'])"
    )
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(tree / "edged" / "__init__.py"), done.stderr


def test_what_is_installed_stays_behind_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """site-packages on PYTHONPATH would let an old backport replace a module of Python's own."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(childprocess, "_ROOT", Path("/usr/lib/python3/site-packages"))
    assert childprocess.environment()["PYTHONPATH"] == ""
    monkeypatch.setattr(childprocess, "_ROOT", Path("/src"))
    monkeypatch.setenv("PYTHONPATH", "/a")
    assert childprocess.environment(X="1")["PYTHONPATH"] == "/src:/a"
    assert childprocess.environment(X="1")["X"] == "1"


def test_the_module_alone_starts_nothing() -> None:
    """A daemon with known bundles imports this module, and must not pay for `subprocess`."""
    code = "import sys, edged.childprocess, edged.selection; print('subprocess' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=_bare())
    assert done.stdout == "False\n"


def _bare() -> dict[str, str]:
    # -S: an editable install's own finder may import anything, which is not our doing.
    paths = [str(SOURCE), *(entry for entry in sys.path if "site-packages" in entry)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


class Strict:
    """A guard that has had enough at its third look, or a later one."""

    def __init__(self, most: int = 3) -> None:
        self.most, self.looks, self.broken = most, 0, ""

    def tick(self) -> bool:
        self.looks += 1
        self.broken = "took too much" * (self.looks == self.most)
        return bool(self.broken)


def test_a_guard_ends_a_child(folder: Path) -> None:
    """What the guard says is how it ended, and nothing goes on running."""
    (folder / "answering.py").write_text("import time\ntime.sleep(60)")
    with childprocess.start_answering("answering") as child:
        with pytest.raises(NoAnswerError, match=r"^took too much$") as caught:
            childprocess.guarded_answer(child, Strict())
        assert (caught.value.code, child.poll()) == (None, -signal.SIGKILL)


def test_a_guarded_answer_is_the_same(folder: Path) -> None:
    """Looked after or not: the last line, also when it takes several looks; and a bad end has its words."""
    (folder / "answering.py").write_text("import time\nprint('noise')\ntime.sleep(0.3)\nprint('{\"a\": 1}')")
    with childprocess.start_answering("answering") as child:
        assert childprocess.guarded_answer(child, Watch(child.pid, Limits(30))) == {"a": 1}
    (folder / "answering.py").write_text("import sys\nsys.exit('no luck')")
    child = childprocess.start_answering("answering")
    with child, pytest.raises(NoAnswerError, match=r"^ended with 1: no luck$"):
        childprocess.guarded_answer(child, Watch(child.pid, Limits(30)))


@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_child_forked_ends_with_it(folder: Path, *, guarded: bool) -> None:
    """It holds the pipes open, and would stay for ever: the child's own end is enough, and it is ended too."""
    source = "import subprocess\np = subprocess.Popen(['sleep', '60'])\nprint('{\"pid\": %d}' % p.pid)"
    (folder / "answering.py").write_text(source)
    with childprocess.start_answering("answering") as child:
        told = childprocess.guarded_answer(child, Strict(1000)) if guarded else childprocess.answer(child, 15)
    eventually(lambda: gone(told["pid"]), "it has ended")


def test_a_process_left_behind_does_not_hold_up_the_answer(folder: Path) -> None:
    """One that made itself a daemon, so that nobody finds it, and that writes on and on."""
    source = (
        "import subprocess\np = subprocess.Popen(['yes'], start_new_session=True)\n"
        "print('\\n{\"pid\": %d}' % p.pid, file=open('pid', 'w'))\nraise SystemExit(3)"
    )
    (folder / "answering.py").write_text(source.replace("'pid'", repr(str(folder / "pid"))))
    child = childprocess.start_answering("answering")
    with child, pytest.raises(NoAnswerError, match="ended with 3"):
        childprocess.answer(child, 15)
    os.kill(json.loads((folder / "pid").read_text())["pid"], signal.SIGKILL)


def test_what_is_late_ends_with_the_processes_it_isolated(folder: Path) -> None:
    """A child of the child leads a session of its own, and has forked: nobody else knows of those."""
    source = (
        "import subprocess, time\n"
        "p = subprocess.Popen(['sh', '-c', 'sleep 60 & echo $! > PID; wait'], start_new_session=True)\ntime.sleep(60)"
    )
    pid = folder / "pid"
    (folder / "answering.py").write_text(source.replace("PID", str(pid)))
    late = Late(lambda: pid.exists() and pid.read_text().endswith("\n"))
    child = childprocess.start_answering("answering")
    with child, pytest.raises(NoAnswerError, match="enough"):
        childprocess.guarded_answer(child, late)
    eventually(lambda: gone(int(pid.read_text())), "it has ended")


class Late:
    """A guard that has had enough when something has happened."""

    def __init__(self, happened: Callable[[], bool]) -> None:
        self._happened, self.broken = happened, "enough"

    def tick(self) -> bool:
        return self._happened()


def gone(pid: Any) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("dies", ["childprocess.die_with_parent()", "probe._die_with_parent()"])
def test_a_child_whose_parent_was_killed_before_it_could_say_so_ends(folder: Path, dies: str) -> None:
    """The kernel tells only of what comes afterwards."""
    (folder / "answering.py").write_text(
        "import os, sys, time\nfrom pathlib import Path\nfrom edged import childprocess\nfrom delegates import probe\n"
        "Path(sys.argv[1], 'pid').write_text(str(os.getpid()))\n"
        "while os.getppid() == int(sys.argv[2]): time.sleep(0.01)\n"
        f"{dies}\nPath(sys.argv[1], 'lives').touch()\n"
    )
    parent = (
        "import os, signal, sys, time\nfrom pathlib import Path\nfrom edged import childprocess\n"
        "child = childprocess.start_answering('answering', sys.argv[1], str(os.getpid()))\n"
        "while not Path(sys.argv[1], 'pid').exists(): time.sleep(0.01)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", parent, str(folder)], check=False, cwd=SOURCE)
    assert done.returncode == -signal.SIGKILL
    eventually(lambda: gone((folder / "pid").read_text()), "it has ended")
    assert not (folder / "lives").exists()


def test_a_child_whose_parent_lives_goes_on(folder: Path) -> None:
    """And its own children are not told of a parent that is none of theirs."""
    source = (
        "import json, os\nfrom edged import childprocess\nchildprocess.die_with_parent()\n"
        "print(json.dumps({'parent': os.environ.get('EDGED_PARENT')}))"
    )
    assert answer(folder, source) == {"parent": None}
