#!/usr/bin/env bash
# Makes a virtual environment: make-venv.sh DIRECTORY [PYTHON]
# Without PYTHON: the first interpreter that TensorFlow has wheels for (3.10 to 3.13), else any newer one.
# Where Debian has split `venv` off: installs it when root, else says the one line to type.
set -euo pipefail

directory=$1
unavailable=69 # sysexits.h

is() { # is PYTHON CONDITION: whether the interpreter runs and the condition on its version holds
    command -v "$1" >/dev/null 2>&1 && "$1" -c "import sys; v = sys.version_info[:2]; sys.exit(not ($2))" 2>/dev/null
}

pick() {
    local condition name
    for condition in "(3, 10) <= v <= (3, 13)" "v > (3, 13)"; do
        for name in python3 python3.13 python3.12 python3.11 python3.10 python3.14; do
            if is "$name" "$condition"; then
                echo "$name"
                return
            fi
        done
    done
}

python=${2:-$(pick)}
if [ -z "$python" ] || ! is "$python" "v >= (3, 10)"; then
    echo "make: no Python 3.10 or newer found${2:+ at $2} (install python3, or name one: make PYTHON=/path/to/python3)" >&2
    exit $unavailable
fi

if ! "$python" -c "import ensurepip" 2>/dev/null; then
    version=$("$python" -c "import sys; print('python%d.%d' % sys.version_info[:2])")
    package="$version-venv"
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q && apt-get install -q -y --no-install-recommends "$package"
    else
        echo "make: $version cannot make virtual environments yet. Type: sudo apt-get install -y $package" >&2
        exit $unavailable
    fi
fi

"$python" -m venv "$directory"
