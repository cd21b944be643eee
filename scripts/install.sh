#!/bin/sh
# Creates .venv and installs the lock and the project in it; does nothing when that has been done.
# PYTHON names the interpreter to create it with; otherwise it is the first of python3.11, python3.10 and python3
# that fits.
set -eu
cd "$(dirname "$0")/.."

uv_version=0.13.7
venv=.venv
stamp=$venv/.installed

fail() {
    echo "$*" >&2
    exit 1
}

# A checksum of everything that an installation depends on. The folder is part of it because an editable
# installation points to it, and so are the packages, because it lists the ones that exist when it is made.
wanted() {
    {
        echo "$uv_version" "$PWD"
        $venv/bin/python --version 2>&1 || true
        ls -d cmimh_tf tuner pipeline serving 2>/dev/null || true
        cat requirements.txt requirements-3.10.txt pyproject.toml
    } | cksum
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3.11 python3.10 python3; fi
    reason=
    for candidate; do
        # A pyenv shim can be on the path and still not run: running is the only test.
        "$candidate" -c '' 2>/dev/null || continue
        if message=$("$candidate" scripts/check_python.py); then
            echo "$candidate"
            return
        fi
        reason=${reason:-$message}
    done
    fail "${reason:-Python 3.11 (or 3.10) is needed. Tried without success: $*.}"
}

[ "$(cat $stamp 2>/dev/null)" = "$(wanted)" ] && exit 0
rm -f $stamp

# An environment that a killed run left behind, or that another Python made, is made again.
if ! $venv/bin/python scripts/check_python.py >/dev/null 2>&1 ||
    ! $venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    echo "Creating $venv with $("$python" --version)."
    "$python" -m venv --clear $venv
fi

lock=requirements.txt
$venv/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' && lock=requirements-3.10.txt

echo "Installing $lock (about 3.5 GB on disk, two minutes)."
$venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_version" ||
    fail "uv $uv_version could not be installed from PyPI; is there a network connection?"
# --no-deps: the lock is complete, and its overrides contradict what tfx declares. The lock also holds the
# setuptools and wheel that source packages are built with.
$venv/bin/uv pip install --quiet --compile-bytecode --python $venv/bin/python --no-deps --build-constraints $lock -r $lock
$venv/bin/uv pip install --quiet --python $venv/bin/python --no-deps --no-build-isolation --editable .
wanted >$stamp.new
mv $stamp.new $stamp
