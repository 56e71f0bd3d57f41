"""What the options of several benchmarks have in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

from dayfly.errors import RequestError


def new_parser(name: str, description: str, epilog: str = "") -> argparse.ArgumentParser:
    """Of `dayfly bench NAME`; it says what is wrong with the options and exits with 2."""
    return argparse.ArgumentParser(
        prog=f"dayfly bench {name}",
        description=description,
        epilog=f"--json prints one JSON object as the last line of standard output. {epilog}",
        allow_abbrev=False,
    )


def add_parts(parser: argparse.ArgumentParser, parts: Mapping[str, str]) -> None:
    """Flags of a benchmark's parts. parts: what each is, by name."""
    for name, what in parts.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"only this: {what}")


def add_keep(parser: argparse.ArgumentParser) -> None:
    """`--keep FILE`; parsing raises RequestError if its directory is not there."""

    def file(text: str) -> Path:
        if not Path(text).resolve().parent.is_dir():
            raise RequestError(f"--keep {text}: there is no such directory; make it")
        return Path(text)

    parser.add_argument(
        "--keep",
        type=file,
        metavar="FILE",
        help="write each run there as it ends, a line each, and do not repeat those that are there",
    )


def add_pictures(parser: argparse.ArgumentParser) -> None:
    """`--pictures DIR`; parsing raises RequestError if it is not there."""

    def directory(text: str) -> Path:
        if not Path(text).is_dir():
            raise RequestError(f"--pictures {text}: there is no such directory; make it")
        return Path(text)

    parser.add_argument("--pictures", type=directory, metavar="DIR", help="draw them there, as PNG")


def asked_parts(asked: argparse.Namespace, parts: Iterable[str]) -> list[str]:
    """Those that were asked for; all, if none was."""
    every = list(parts)
    return [name for name in every if getattr(asked, name)] or every


def refuse_figures(asked: argparse.Namespace, above_zero: Iterable[str]) -> None:
    """Raise RequestError for figures that cannot be: of these names, and of the latency."""
    for name in above_zero:
        figure = getattr(asked, name)
        if figure is not None and not 0 < figure < float("inf"):
            raise RequestError(f"--{name} {figure:g}: give a number above 0")
    if asked.latency is not None and not 0 <= asked.latency < float("inf"):
        raise RequestError(f"--latency {asked.latency:g}: give milliseconds, 0 or more")
