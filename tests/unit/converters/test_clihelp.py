"""The help's words, held against what they speak of."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from converters import cli, clihelp, compat
from converters.options import MODES, PREFERRED
from edged.engines import op_versions

ROOT = Path(cli.__file__).parents[1]
README = Path(__file__).parents[3] / "README.md"


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_every_delegate_that_can_be_a_target_is_told() -> None:
    """The names stand in the help; asking for them takes numpy, which a help page does not wait for."""
    ours = set(compat.delegate_names())
    assert set(clihelp.DELEGATES) == ours
    assert ", ".join(clihelp.DELEGATES) in clihelp.epilog()


def test_runtimes_and_releases_are_told_as_they_are() -> None:
    """Names and number are those of the measured table, in the help and in the README."""
    assert " or ".join(op_versions.RUNTIMES) in clihelp.epilog()
    assert f"{len(op_versions.releases())} releases" in one_line(clihelp.epilog())
    assert f"{len(op_versions.releases())} releases" in one_line(README.read_text())


def test_the_help_tells_every_modes_gates() -> None:
    """One row for each mode, with its bounds as they stand in the table of modes."""
    rows = {line.split()[0]: line for line in clihelp.epilog().splitlines() if re.match("  [^ ]", line)}
    for name, mode in MODES.items():
        bounds = f"{mode.cosine:g} +{mode.r2:g} +{mode.agreement:g}"
        assert re.fullmatch(
            rf"  {name} +{bounds} +{re.escape(mode.says)}{re.escape('*' * mode.calibrated)}", rows[name]
        )


def test_help_and_readme_tell_the_same_of_modes() -> None:
    """What a mode makes, and the order in which `auto` prefers them, are written down once; the README repeats them."""
    readme = README.read_text()
    for name, mode in MODES.items():
        assert f"| `{name}` | {mode.says}{'; needs `--calibration`' * mode.calibrated} |" in readme
    assert f"in the order {', '.join(PREFERRED)}" in one_line(clihelp.epilog())
    assert f"the order {', '.join(PREFERRED)}" in one_line(readme)


def test_no_line_is_wider_than_a_terminal_of_120() -> None:
    """Wrapped lines would break the tables."""
    assert max(map(len, clihelp.epilog().splitlines())) <= 120


def test_help_waits_for_nothing_heavy() -> None:
    """Neither numpy nor YAML nor TensorFlow is imported to print it."""
    code = (
        "import sys; from edged import cli; cli.main(['convert', '--help']); "
        "print([m for m in ('numpy', 'yaml', 'tensorflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "exit codes:" in done.stdout


def test_every_option_of_the_help_exists() -> None:
    """A flag that the help or the README's section speaks of can be given."""
    parser_text = subprocess.run(
        [sys.executable, "-m", "edged", "convert", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    usage = parser_text.partition("positional arguments")[0]
    section = README.read_text().partition("## Converting")[2].partition("\n## ")[0]
    told = set(re.findall(r"--[a-z][a-z-]+", clihelp.epilog() + section))
    assert told - set(re.findall(r"--[a-z][a-z-]+", usage)) - {"--help"} == set()
