"""The report in its forms: inside the bundle, where --report asks for it, and beside the output of a refused model.

A bundle's own copy leaves out what differs from run to run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from converters import reportjson, reportpage
from converters.options import Options
from converters.report import Report
from edged import bundle
from edged.errors import UsageError


def check(options: Options) -> None:
    """Raise UsageError unless --report names a file that can be written."""
    if not options.report:
        return
    path = Path(options.report).absolute()
    if path.suffix != ".html":
        raise UsageError("--report", f"{path.name} is no page", "FILE.html; the same facts go to FILE.json")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError("--report", f"{path.parent} is no directory that can be written to")


def files(report: Report) -> dict[str, bytes]:
    """Return the bundle's own report.html and report.json."""
    return {bundle.REPORT: _page(report, timings=False), bundle.REPORT_JSON: _json(report, timings=False)}


def keep_passed(options: Options, report: Report) -> None:
    """Write the report where --report asks for it; an older report of a refusal beside the bundle is now untrue."""
    for path in (refused_page(options.output), refused_page(options.output).with_suffix(".json")):
        path.unlink(missing_ok=True)
    if options.report:
        _keep(Path(options.report).absolute(), report)


def keep_refused(options: Options, report: Report) -> Path:
    """Write the report of a refusal where --report says, else beside the output; return where the page is."""
    path = Path(options.report).absolute() if options.report else refused_page(options.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    _keep(path, report)
    return path


def refused_page(output: Path) -> Path:
    """Return where a refusal's page goes: `bundles/har` gives `bundles/har-refused.html`."""
    return output.with_name(output.name.removesuffix(".tar") + "-refused.html")


def _keep(path: Path, report: Report) -> None:
    for target, data in ((path, _page(report, timings=True)), (path.with_suffix(".json"), _json(report, timings=True))):
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            fresh.write_bytes(data)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)


def _page(report: Report, *, timings: bool) -> bytes:
    return reportpage.page(report, timings=timings).encode()


def _json(report: Report, *, timings: bool) -> bytes:
    return (json.dumps(reportjson.document(report, timings=timings), indent=2) + "\n").encode()
