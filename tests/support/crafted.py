"""Shared libraries that misbehave in their own ways, compiled from a few lines of C."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support import require

ENTRY = (
    "void *tflite_plugin_create_delegate(char **k, char **v, unsigned long n, void (*e)(const char *))"
    " { (void)k, (void)v, (void)n, (void)e; return 0; }\n"
    "void tflite_plugin_destroy_delegate(void *d) { (void)d; }\n"
)
STABLE = "const int TFL_TheStableDelegate = 1;\n"
VERSION = 'const char *edgetpu_version(void) { return "BuildLabel(COMPILER=12,DATE=redacted)"; }\n'
CRASHES = "__attribute__((constructor)) static void start(void) { *(volatile int *)0 = 1; }\n"
HANGS = "int pause(void);\n__attribute__((constructor)) static void start(void) { for (;;) pause(); }\n"
FORKS_AND_HANGS = "int fork(void);\n" + HANGS.replace("for (;;)", "fork(); for (;;)")
NOISY = (
    "int puts(const char *);\nvoid _exit(int);\n"
    '__attribute__((constructor)) static void start(void) { puts("a word of the vendor"); }\n'
    "__attribute__((destructor)) static void end(void) { *(volatile int *)0 = 1; }\n"
)


def library(path: Path, source: str, *needs: Path) -> Path:
    """Compile `source` to a shared library at `path`; needs: libraries that it is linked with."""
    require.programs("gcc")
    code = path.with_suffix(".c")
    code.write_text(source)
    command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(path), str(code), *map(str, needs)]
    subprocess.run(command, check=True, timeout=60)
    return path
