"""`dayfly bench NAME`: measure, with the benches of a checkout.

A bench is a module `benchmarks/NAME.py` with

    run(args) -> dict       measures, given the options after its name; progress to standard error
    table(result) -> Table  the same for a person

Benches compare dayfly with its peers, which are no part of the product, so they are not installed
with it.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

import dayfly
from dayfly.cli.outcome import DONE, ActionFailure, attempt
from dayfly.errors import RequestError
from dayfly.life.reports import plain
from dayfly.runs.signals import StopSignals


def benches(checkout: Path) -> dict[str, str]:
    """The benches of a checkout, each with what it says of itself.

    Raises RequestError if this is no checkout.
    """
    folder = checkout / "benchmarks"
    if not (folder / "__init__.py").is_file():
        raise RequestError(
            f"there are no benches in {checkout}, as they are not installed with dayfly: clone its "
            "repository, and use the dayfly that make venv installs there"
        )
    files = sorted(path for path in folder.glob("*.py") if path.stem != "__init__")
    return {path.stem: _first_line(path) for path in files}


def measure(name: str, args: Sequence[str], *, as_json: bool) -> int:
    """Run a bench, print its result, return the exit code. The name `--help` lists them."""

    def action() -> tuple[Any, Mapping[str, Any]] | None:
        known = benches(Path(dayfly.__file__).resolve().parents[2])
        if name == "--help":
            print(_usage(known))
            return None
        bench = _module(name, known)
        with StopSignals(), _saying_what_is_missing():
            return bench, bench.run(args)

    done = attempt(action)
    if done is None:
        return DONE
    failed = done if isinstance(done, ActionFailure) else None
    bench, result = (None, {}) if isinstance(done, ActionFailure) else done
    if as_json:
        status, error = ("done", None) if failed is None else (failed.status, failed.error)
        whole = {"bench": name, "status": status, "error": error, **result}
        print(json.dumps(plain(whole), allow_nan=False))
    elif bench is not None:
        Console().print(bench.table(result))
    return DONE if failed is None else failed.code


def _module(name: str, known: Mapping[str, str]) -> Any:
    if name not in known:
        raise RequestError(f"there is no bench {name!r}: give one of {', '.join(known)}")
    return checkout_module(name)


def checkout_module(name: str) -> Any:
    """Imports the module `benchmarks.NAME` from the checkout that dayfly runs from.

    Raises:
        RequestError: it runs from none, or a package that the module imports is not installed.
    """
    checkout = Path(dayfly.__file__).resolve().parents[2]
    benches(checkout)
    sys.path.insert(0, str(checkout))
    with _saying_what_is_missing():
        return importlib.import_module(f"benchmarks.{name}")


@contextmanager
def _saying_what_is_missing() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise RequestError(
            f"benchmarks need {error.name}, which is not installed: run make .venv/.test in the "
            "checkout, which installs what tests and benches need"
        ) from error


def _usage(known: Mapping[str, str]) -> str:
    width = max(map(len, known))
    lines = [f"  {name:<{width}}  {what}" for name, what in known.items()]
    how = "usage: dayfly bench NAME [options of the bench] [--json]"
    return "\n".join([how, "", *lines, "", "dayfly bench NAME --help tells a bench's options."])


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
