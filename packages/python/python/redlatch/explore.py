"""A runner for `redlatch explore`: it stays, and runs pytest once for each line that it reads.

    redlatch explore --runner -- python -m redlatch.explore tests/test_orders.py::test_pay

The arguments are those of pytest.

Owns    the process of each run: a child made by fork, which imports the tests anew and leaves nothing to the next run.
Rule    what the tests import from Python and from installed packages is imported once, before the fork: that is most of the time
        of a run. What pytest rewrites, such as its plugins, is left to the child.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import sysconfig
import tempfile
import traceback
from typing import Any, BinaryIO, NoReturn, Sequence

import pytest

#: Bytes of the end of a run's output that are told.
OUTPUT_BYTES_MAX = 8192

_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def main(arguments: Sequence[str]) -> None:
    """Runs pytest with these arguments for each line of the standard input, until that ends."""
    if not hasattr(os, "fork"):
        sys.exit("redlatch.explore needs fork, which this system lacks: explore the command pytest itself, without --runner")
    # The answers have the standard output for themselves.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            answers.write(json.dumps(run(arguments, json.loads(line)["env"])) + "\n")
            answers.flush()


def run(arguments: Sequence[str], variables: dict[str, str]) -> dict[str, Any]:
    """Runs pytest once with these variables: whether it has passed, and the end of what it has printed."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as imported:
        child = os.fork()
        if child == 0:
            _run_here(arguments, variables, output, imported)
        _, status = os.waitpid(child, 0)
        imported.seek(0)
        _import(imported.read().decode().split())
        output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_BYTES_MAX))
        return {"passed": status == 0, "output": output.read().decode(errors="replace")}


def _run_here(arguments: Sequence[str], variables: dict[str, str], output: BinaryIO, imported: BinaryIO) -> NoReturn:
    """What a child does. It never returns to the loop of its parent."""
    status = 1
    try:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        os.environ.update(variables)
        status = int(pytest.main(list(arguments)))
        names = [name for name, module in sys.modules.items() if _is_installed(module)]
        imported.write(" ".join(names).encode())
        imported.flush()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _is_installed(module: Any) -> bool:
    """Whether a module came with Python or an installed package, and was not rewritten by pytest."""
    is_rewritten = type(getattr(module, "__loader__", None)).__name__ == "AssertionRewritingHook"
    return not is_rewritten and str(getattr(module, "__file__", None)).startswith(_INSTALLED)


def _import(names: Sequence[str]) -> None:
    for name in names:
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except Exception:
                # Some modules can be imported from within others alone. The child does it as before.
                continue


if __name__ == "__main__":
    main(sys.argv[1:])
