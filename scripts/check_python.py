"""Says in one sentence why this Python cannot run the project; silent, with exit code 0, when it can.

Runs before anything is installed, on whatever Python there is: standard library only, and no syntax newer
than Python 3.6.
"""

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig

SUPPORTED_PYTHONS = ((3, 11), (3, 10))
# The newest glibc that a wheel of the lock needs.
MINIMUM_GLIBC = (2, 28)


def find_problem(python, implementation, system, machine, glibc, has_venv, has_compiler):
    """Returns the first reason not to install, or an empty string.

    Args:
        python: version as a tuple of int, such as (3, 11, 7).
        implementation: such as "CPython".
        system: such as "Linux".
        machine: such as "x86_64".
        glibc: version as a tuple of int; empty where the C library is another one.
        has_venv: whether `python -m venv` can work.
        has_compiler: whether a C++ compiler and the headers of this Python are there.
    """
    version = ".".join(map(str, python))
    if system != "Linux" or machine != "x86_64":
        return (
            "TFX 1.16 has packages for Linux on x86_64 only; use such a machine or a container. "
            "Received: {} on {}.".format(system, machine)
        )
    if glibc < MINIMUM_GLIBC:
        return "The C library must be glibc 2.28 or newer (Debian 10, Ubuntu 20.04, RHEL 8). Received: {}.".format(
            "glibc " + ".".join(map(str, glibc)) if glibc else "another one, such as musl"
        )
    if implementation != "CPython" or tuple(python[:2]) not in SUPPORTED_PYTHONS:
        return (
            "Python must be CPython 3.11 or 3.10; install one, or name it: "
            "make test PYTHON=/path/to/python3.11. Received: {} {} at {}.".format(
                implementation, version, sys.executable
            )
        )
    if not has_venv:
        return (
            "Python {} at {} cannot create virtual environments; on Debian or Ubuntu run: "
            "apt install python{}.{}-venv.".format(version, sys.executable, python[0], python[1])
        )
    if tuple(python[:2]) == (3, 10) and not has_compiler:
        return (
            "On Python 3.10 one dependency has to be compiled; use Python 3.11, or on Debian or Ubuntu run: "
            "apt install g++ python3.10-dev."
        )
    return ""


def _glibc_version():
    library, version = platform.libc_ver()
    return tuple(int(part) for part in version.split(".")[:2]) if library == "glibc" else ()


def _has_compiler():
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return bool(shutil.which("g++") or shutil.which("c++")) and os.path.exists(header)


def main():
    problem = find_problem(
        python=sys.version_info[:3],
        implementation=platform.python_implementation(),
        system=platform.system(),
        machine=platform.machine(),
        glibc=_glibc_version(),
        has_venv=all(importlib.util.find_spec(module) for module in ("venv", "ensurepip")),
        has_compiler=_has_compiler(),
    )
    if problem:
        print(problem)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
