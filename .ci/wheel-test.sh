#!/usr/bin/env bash
# Builds the wheel once and tests that wheel, installed by itself with the sources out of reach: wheel-test.sh PYTHON
# PYTHON: an interpreter with `build`. What needs TensorFlow is left out: the wheel is what a device installs.
set -euo pipefail

python=$(realpath -s "$1")
sources=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m build --wheel --outdir "$work/dist" "$sources" >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
wheel=$(echo "$work"/dist/*.whl)

"$python" - "$wheel" <<'EOF'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = wheel.namelist()
top = {name.split("/")[0] for name in names}
expected = {"edged", "converters", "delegates", next(name for name in top if name.endswith(".dist-info"))}
sys.exit(f"the wheel's top level is {sorted(top)}, not {sorted(expected)}" if top != expected else 0)
EOF

"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install --quiet \
    "$wheel[tflite,image,cbor,broker]" pytest hypothesis pytest-timeout

mkdir "$work/tests"
cp -r "$sources/tests/." "$work/tests"
cp "$sources/pyproject.toml" "$sources/README.md" "$work" # pytest's settings; words that the help repeats
cd "$work"
installed=$("$work/venv/bin/python" - "$work/venv" <<'EOF'
import sys

import converters
import delegates
import edged

for package in (edged, converters, delegates):
    assert package.__file__.startswith(sys.argv[1]), f"{package.__file__} is not the wheel's"
print(edged.__path__[0])
EOF
)
ln -s "$installed/configs" configs # the samples are tested as they travel in the wheel
"$work/venv/bin/python" -m pytest -m "not tf and not npm and not zoo and not bench" tests/unit tests/contract
