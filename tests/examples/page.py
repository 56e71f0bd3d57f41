"""A page of the documentation as a reader follows it: files to write, commands to type."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+\.py)`")
_QUOTED = re.compile(r"`([^`\n]+)`")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: A figure that the page gives to be compared, by the word before it.
_MEASURED = re.compile(r"\b(loss|accuracy) (\d+(?:\.\d+)?)")
#: How far what was measured may be from what the page says: another CPU rounds otherwise.
TOLERANCE = 0.03


@dataclass(frozen=True)
class File:
    """To be written as it stands."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """line: as it is typed. said: lines that are to come out, in order, others between them."""

    line: str
    said: tuple[str, ...]


def steps_of(page: str) -> list[File | Command]:
    """The page's files and commands, in order.

    A block of Python is the file that was named last before it, since the block before; in a block
    `console`, what follows `$ ` is typed. Other blocks, and Python without a file, are for reading.
    """
    steps: list[File | Command] = []
    before = 0
    for block in _BLOCK.finditer(page):
        language, text = block.groups()
        if language == "python":
            steps += [File(name, text) for name in _FILE.findall(page[before : block.start()])[-1:]]
        elif language == "console":
            steps += commands_of(text)
        before = block.end()
    return steps


def commands_of(console: str) -> list[Command]:
    """What is typed in a console, and what comes out; a line of three dots stands for anything."""
    found: list[Command] = []
    for line in console.splitlines():
        if line.startswith("$ "):
            found.append(Command(line.removeprefix("$ "), ()))
        elif line != "...":
            last = found.pop()
            found.append(Command(last.line, (*last.said, line)))
    return found


def measured(text: str) -> list[tuple[str, float]]:
    """Figures with their names, in order."""
    return [(name, float(value)) for name, value in _MEASURED.findall(text)]


def agrees(said: str, line: str) -> bool:
    """Whether a line is what the page says: the same words, and about the same measured figures.

    Other numbers, such as seconds, are this machine's.
    """
    if _NUMBER.sub("#", said) != _NUMBER.sub("#", line):
        return False
    pairs = zip(measured(said), measured(line), strict=True)
    return all(abs(one - other) <= TOLERANCE for (_, one), (_, other) in pairs)


def quoted(page: str, beginning: str) -> str:
    """What the page quotes, and begins so."""
    (text,) = {one for one in _QUOTED.findall(page) if one.startswith(beginning)}
    return str(text)


def holds(output: str, said: str) -> bool:
    """Whether the output has these words somewhere, whatever their numbers."""
    return _NUMBER.sub("#", said) in _NUMBER.sub("#", output)


def missing(said: tuple[str, ...], output: str) -> list[str]:
    """Lines of the page that did not come out, in their order."""
    lines = iter(output.splitlines())
    return [wanted for wanted in said if not any(agrees(wanted, line) for line in lines)]
