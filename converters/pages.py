"""The report in its forms: inside the bundle, where --report asks for it, and beside the output of a refused model.

A bundle's own copy leaves out what differs from run to run. Files that somebody else made are never touched.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from converters import disk, place, reportjson, reportpage
from converters.options import Options
from converters.report import Report
from edged import bundle
from edged.errors import UnavailableError, UsageError

# By these, and reportpage.MARK, a file is known as a report of ours.
_KEYS = frozenset({"format", "ships", "shown", "attempts"})
_HEAD = 4096


def check(options: Options) -> None:
    """Raise UsageError unless the report can be written: where --report says, else beside the output if refused."""
    flag = "--report" if options.report else "-o"
    path = _target(options)
    if path.suffix != ".html":
        raise UsageError(flag, f"{path.name} is no page", "FILE.html; the same facts go to FILE.json")
    if options.report and (not path.parent.is_dir() or not os.access(path.parent, os.W_OK)):
        raise UsageError(flag, f"{path.parent} is no directory that can be written to")
    place.check_names(path, flag)
    output = _real(options.output)
    for file in _pair(path):
        real = _real(file)
        if real == output or output in real.parents:
            raise UsageError(flag, f"{file} lies in the output", "the bundle has a report of its own")
        if other := place.bundle_around(file):
            raise UsageError(flag, f"{file} lies in the bundle {other}, which has a report of its own")
        if os.path.lexists(file) and not _ours(file):
            hint = "move it away, or name another" if options.report else "move it away, or name another with --report"
            raise UsageError(flag, f"{file} would be the report, but exists and is none of edged's", hint)


def files(report: Report) -> dict[str, bytes]:
    """Return the bundle's own report.html and report.json."""
    return {bundle.REPORT: _page(report, timings=False), bundle.REPORT_JSON: _json(report, timings=False)}


def keep_passed(options: Options, report: Report) -> None:
    """Write the report where --report asks for it; an older report of a refusal beside the bundle is now untrue.

    Raises UnavailableError when that cannot be done.
    """
    for path in _pair(refused_page(options.output)):
        if _ours(path):
            with disk.told(str(path)):
                path.unlink(missing_ok=True)
    if options.report:
        _keep(_target(options), report)


def keep_refused(options: Options, report: Report) -> Path:
    """Write the report of a refusal where --report says, else beside the output; return where the page is.

    Raises UnavailableError when it cannot be written.
    """
    path = _target(options)
    with disk.told(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
    _keep(path, report)
    return path


def refused_page(output: Path) -> Path:
    """Return where a refusal's page goes: `bundles/har` gives `bundles/har-refused.html`."""
    return output.with_name(output.name.removesuffix(".tar") + "-refused.html")


def _target(options: Options) -> Path:
    return Path(options.report).absolute() if options.report else refused_page(options.output)


def _real(path: Path) -> Path:
    """Return the path without links, but for the file itself, which is replaced and not followed."""
    return path.parent.resolve() / path.name


def _pair(page: Path) -> tuple[Path, Path]:
    return page, page.with_suffix(".json")


def _ours(path: Path) -> bool:
    """Whether it is a file that was written here."""
    try:
        if not path.is_file():
            return False
        if path.suffix == ".html":
            with path.open("rb") as file:
                return reportpage.MARK.encode() in file.read(_HEAD)
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= _KEYS


def _keep(page: Path, report: Report) -> None:
    """Write both files whole before either takes its name."""
    contents = (_page(report, timings=True), _json(report, timings=True))
    with disk.told(str(page)), tempfile.TemporaryDirectory(dir=page.parent, prefix=".edged-") as beside:
        for target, data in zip(_pair(page), contents, strict=True):
            (Path(beside) / target.name).write_bytes(data)
            if os.path.lexists(target) and not _ours(target):
                raise UnavailableError(str(target), "has appeared meanwhile, and is left as it is")
        for target in _pair(page):
            (Path(beside) / target.name).replace(target)


def _page(report: Report, *, timings: bool) -> bytes:
    return reportpage.page(report, timings=timings).encode()


def _json(report: Report, *, timings: bool) -> bytes:
    return (json.dumps(reportjson.document(report, timings=timings), indent=2) + "\n").encode()
