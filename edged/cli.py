"""The command line: finds the command, runs it, and turns what it raises into one line and an exit code.

`edged run` must start fast: only its own module is imported, and installed packages are asked for further commands only
where the name is not built in, or for the list in `--help`.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, cast

from edged import __version__
from edged.checks import hint
from edged.commands import Command
from edged.errors import EdgedError, ExitCode, UnavailableError, UsageError
from edged.shown import plain, plain_lines

GROUP = "edged.commands"
BUILT_IN = {
    "run": "serve models on this device over MQTT",
    "check": "check a configuration and its bundles, and say what would run",
    "doctor": "say what of this machine can serve, and how to mend what cannot",
    "delegates": "measure the delegates of every model, and say which serves and why",
    "inspect": "show what is in a bundle or a .tflite model",
    "attach": "put a model compiled for an accelerator into a bundle, beside its CPU twin",
    "sample": "print a commented sample configuration",
    "infer": "send one request and print the answer",
    "record": "record samples from live MQTT traffic, to calibrate and evaluate a model",
    "top": "watch devices, their models and latencies",
    "bench": "load a device, and tell its latencies, its knee and where the time goes",
}
LOG_LEVELS = ("debug", "info", "warning", "error")

_INTERRUPTED = 130
_PIPE_CLOSED = 141
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_EPILOG = """\
exit codes:
  0   all right
  2   usage: the command line makes no sense
  65  bad data: a file or payload is not what it must be
  69  unavailable: a broker, a library or a device is not there
  70  internal: a fault in edged or below it
  78  config: the configuration is wrong

examples:
  edged sample minimal > edged.yaml
  edged check -c edged.yaml
  edged run -c edged.yaml
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never raises."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = bool(os.environ.get("EDGED_DEBUG")) or "--debug" in args
    try:
        _streams()
        _tolerant_output()
        code = _dispatch(args)
        sys.stdout.flush()
    except SystemExit as exc:  # argparse: 0 after --help, 2 after a usage error
        _output_closed()
        return exc.code if isinstance(exc.code, int) else ExitCode.INTERNAL
    except KeyboardInterrupt:
        return _INTERRUPTED
    except EdgedError as exc:
        return _failed(exc, debug)
    except OSError as exc:
        return _failed_io(exc, debug)
    except Exception as exc:  # noqa: BLE001  # the top of the program: whatever it is, one line and a code
        return _fault(exc, debug)
    return code


def setup_logging(level: str) -> None:
    """Log to standard error from `level` on; where the journal reads, with a priority instead of the time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JournalFormatter() if _journal() else _PlainFormatter("%(asctime)s %(levelname)-7s %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class _PlainFormatter(logging.Formatter):
    """Text without control characters, whatever a message repeats."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record))


class _JournalFormatter(_PlainFormatter):
    """`<priority>message`, as sd-daemon(3) says."""

    def format(self, record: logging.LogRecord) -> str:
        priority = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}.get(record.levelno, 2)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())


def _journal() -> bool:
    """Whether standard error is the journal's own stream (systemd.exec(5), JOURNAL_STREAM)."""
    stream = os.environ.get("JOURNAL_STREAM")
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"


def _dispatch(argv: list[str]) -> int:
    top = _top_parser()
    args = top.parse_args(argv)
    if args.help or args.command is None:
        (sys.stdout if args.help else sys.stderr).write(_help(top))
        return ExitCode.OK if args.help else ExitCode.USAGE
    command = _load(args.command)
    parser = _command_parser(args.command, command)
    given = parser.parse_args(args.arguments)
    setup_logging(given.log_level or getattr(command, "LOG_LEVEL", "warning"))
    return command.run(given)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without control characters; the usage is a screen of options."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{self.prog}: error: {plain(' '.join(message.split()))} (see {self.prog} --help)\n")


def _top_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="edged", add_help=False, allow_abbrev=False)
    parser.usage = "edged [--version] [--debug] [-h] COMMAND …"
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="version", version=f"edged {__version__}")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("command", nargs="?")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _command_parser(name: str, command: Command) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"edged {name}",
        description=command.HELP[:1].upper() + command.HELP[1:] + ".",
        epilog=command.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        conflict_handler="resolve",
        allow_abbrev=False,
    )
    common = parser.add_argument_group("common options")
    common.add_argument("--log-level", choices=LOG_LEVELS, help="least severe message that is logged")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    command.configure(parser)
    return parser


def _load(name: str) -> Command:
    if name in BUILT_IN:
        return cast("Command", import_module(f"edged.commands.{name}"))
    foreign = _foreign()
    if name not in foreign:
        close = hint(name, [*BUILT_IN, *foreign])
        raise UsageError(name, f"no such command{close}", "" if close else "edged --help lists them")
    return cast("Command", _import_foreign(foreign[name]))


def _import_foreign(entry: Any) -> ModuleType:
    try:
        return cast("ModuleType", entry.load())
    except ImportError as exc:
        raise UnavailableError(f"edged {entry.name}", f"cannot be loaded: {exc}", "install its package again") from exc


def _foreign() -> dict[str, Any]:
    # Imported here: it reads the metadata of every installed package.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in BUILT_IN}


def _help(top: argparse.ArgumentParser) -> str:
    lines = BUILT_IN | {name: _foreign_help(entry) for name, entry in sorted(_foreign().items())}
    commands = "\n".join(f"  {name:10}{line}" for name, line in lines.items())
    tail = "`edged COMMAND --help` tells more. --debug, or EDGED_DEBUG=1, shows the traceback of an error."
    return f"{top.format_usage()}\ncommands:\n{commands}\n\n{tail}\n\n{_EPILOG}"


def _foreign_help(entry: Any) -> str:
    try:
        return str(_import_foreign(entry).HELP)
    except UnavailableError as exc:
        return f"({exc.what})"


def _failed(error: EdgedError, debug: bool) -> int:
    # The last line of defence: whatever an error repeats, from a file or the network, reaches the terminal as text.
    for line in str(error).splitlines():
        sys.stderr.write(f"edged: {plain(line)}\n")
    return _end(error, debug, error.exit_code)


def _failed_io(error: OSError, debug: bool) -> int:
    if isinstance(error, BrokenPipeError) and _output_closed():
        return _PIPE_CLOSED
    if error.errno in _DISK:
        where = str(error.filename or "output")
        return _failed(UnavailableError(where, error.strerror or str(error)), debug)
    return _fault(error, debug)


def _fault(error: BaseException, debug: bool) -> int:
    what = plain(" ".join(f"{type(error).__name__}: {error}".split()))
    more = "" if debug else "; --debug shows where"
    sys.stderr.write(f"edged: internal error: {what} (this is a fault in edged{more})\n")
    return _end(error, debug, ExitCode.INTERNAL)


def _end(error: BaseException, debug: bool, code: ExitCode) -> int:
    if debug:
        import traceback  # noqa: PLC0415  # only a failure needs it

        traceback.print_exception(error)
    _output_closed()
    return code


def _streams() -> None:
    """Let a standard stream that was closed lead nowhere: else the next file to be opened would take its place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, True)  # noqa: FBT003  # the lowest free number is this one; children inherit it
        if getattr(sys, name) is None:
            # It stays open as long as the process: closing is not ours.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


def _tolerant_output() -> None:
    """A terminal that cannot show a character gets its escape, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _output_closed() -> bool:
    """Whether standard output can take no more; if so, silence what the interpreter would say of it at exit."""
    try:
        out = sys.stdout.fileno()
    except (OSError, ValueError):  # not a file: somebody has put something else in its place
        return False
    try:
        sys.stdout.flush()
        closed = _no_reader(out)
    except OSError:
        closed = True
    if closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return closed


def _no_reader(pipe: int) -> bool:
    import select  # noqa: PLC0415  # only an end with an error needs it

    poll = select.poll()
    poll.register(pipe, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
