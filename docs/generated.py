"""The pages of the reference that are made from the code: every flag, every file, every key.

    python docs/generated.py     writes docs/reference/flags.md and docs/reference/files.md

`make docs` runs it, and a test says when a page is not what the code says.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import typer

REFERENCE = Path(__file__).parent / "reference"
_MADE = "<!-- Made by docs/generated.py: do not edit. -->"


def flags() -> str:
    """The page of all commands and their flags, as the command line has them."""
    from dayfly.cli.app import app

    parts = [
        _MADE,
        "# All flags",
        "Every flag of every command, as `dayfly COMMAND --help` has them. "
        "[Commands and flags](../commands.md) says which go together.",
    ]
    for words, command in _commands(typer.main.get_group(app), ("dayfly",)):
        parts.append(f"## {' '.join(words)}")
        parts.append(_sentence(command.help))
        rows = [_flag(one) for one in command.params if not _hidden(one)]
        if rows:
            parts.append(_table(("flag", "meaning", "default"), rows))
    return "\n\n".join(parts) + "\n"


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
        return
    for name, one in below.items():
        if not one.hidden:
            yield from _commands(one, (*words, name))


def _hidden(parameter: Any) -> bool:
    return bool(getattr(parameter, "hidden", False)) or parameter.name == "help"


def _flag(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`", _help(parameter), ""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    shown = parameter.show_default
    default = "" if parameter.default in (None, False, ()) else str(parameter.default)
    return names, _help(parameter), shown if isinstance(shown, str) else default


def _help(parameter: Any) -> str:
    return _sentence(getattr(parameter, "help", None))


def _sentence(text: str | None) -> str:
    """A text in one line."""
    return " ".join((text or "").split())


def files() -> str:
    """The page of all files of a run, and of each key in them."""
    from dayfly.catalogue.metering import Bill, MeteredInvocation
    from dayfly.life.commits import CheckpointPart, Commit
    from dayfly.planning.plan import Plan, Prediction
    from dayfly.planning.profile import Profile
    from dayfly.runs.functions import FunctionSettings
    from dayfly.runs.job_record import Record
    from dayfly.runs.record_kinds import SimulationRecord
    from dayfly.runs.report.reading import History
    from dayfly.runs.result import Result
    from dayfly.runs.scripts.record import Script, ScriptRecord, ScriptSettings
    from dayfly.runs.settings import Settings
    from dayfly.specs import events

    told = {**events._COORDINATOR, **events._WORKER}
    parts = [
        _MADE,
        "# Files and keys",
        "What a run leaves in its directory, and what each key of its JSON files means. A key that "
        "is not marked by *needed* may be missing, or null.",
        _table(
            ("file", "what it is"),
            [
                ("`run.json`", "what it takes to go on with the run, and how it ended"),
                ("`job.pkl`, `code.zip`", "the job, and the directory of its file"),
                ("`data/`", "its arrays, until the run is done"),
                ("`checkpoint/`", "the latest checkpoint; `latest.json` is its commit"),
                ("`weights.safetensors`", "weights after the last step"),
                ("`best.safetensors`", "those of the best epoch, with `--keep best`"),
                ("`history.json`", "what was measured of each epoch, and the loss of each step"),
                ("`bill.json`", "what the run cost, by function and by kind"),
                ("`events/`", "what happened: a file of the coordinator and one of each worker"),
                ("`logs/`", "what functions printed"),
                ("`plan.json`", "of a run by a plan"),
                ("`report.html`", "once `dayfly report` wrote it"),
                ("`files/`", "of a script: what it keeps, `DAYFLY_RUN_DIR`"),
            ],
        ),
    ]
    sections: list[tuple[str, str, type]] = [
        ("The JSON line", "What `--json` prints last; also `result` in `run.json`.", Result),
        ("run.json of a job", "`dayfly train`.", Record),
        ("settings of a job", "In `run.json`; as `dayfly.train` takes them.", Settings),
        ("settings of functions", "Of every run.", FunctionSettings),
        ("run.json of a script", "`dayfly run`.", ScriptRecord),
        ("settings of a script", "In its `run.json`.", ScriptSettings),
        ("script", "In its `run.json`.", Script),
        ("run.json of a simulation", "`dayfly simulate`.", SimulationRecord),
        (
            "history.json",
            "Each epoch is an object. `epoch` is its number; each result has a key of its own.",
            History,
        ),
        ("bill.json", "Dollars under the price list.", Bill),
        ("invocations", "In `bill.json`, and in events.", MeteredInvocation),
        ("checkpoint/latest.json", "The commit of a checkpoint.", Commit),
        ("parts", "In `latest.json`.", CheckpointPart),
        ("plan.json", "What `dayfly plan` and `dayfly predict` write.", Plan),
        ("prediction", "In `plan.json`.", Prediction),
        ("profile.json", "What `dayfly profile` writes; also `profile` in `plan.json`.", Profile),
        *((f"event: {kind}", _first(one), one) for kind, one in told.items()),
    ]
    for title, text, kind in sections:
        parts += [f"## {title}", text]
        rows = [(f"`{one.name}`", _kind(kind, one), _meaning(kind, one)) for one in fields(kind)]
        if rows:
            parts.append(_table(("key", "type", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def _first(kind: type) -> str:
    return _sentence((inspect.getdoc(kind) or "").partition("\n\n")[0])


def _kind(owner: type, field: Field[Any]) -> str:
    """A field's type, as people would say it."""
    found = typing.get_type_hints(owner).get(field.name, field.type)
    text = _type(found)
    needed = field.default is MISSING and field.default_factory is MISSING
    return f"{text}, *needed*" if needed else text


def _type(found: Any) -> str:
    arguments, origin = typing.get_args(found), typing.get_origin(found)
    if type(None) in arguments:
        return " or ".join(_type(one) for one in arguments if one is not type(None))
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{one}`" for one in arguments)
    plain = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    if found in plain:
        return plain[found]
    if origin in (tuple, list) or str(origin).endswith("Sequence'>"):
        inner = [one for one in arguments if one is not Ellipsis]
        return f"list of {_type(inner[0])}" if len(set(inner)) == 1 else "list"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_type, arguments)))
    return "object"


def _meaning(owner: type, field: Field[Any]) -> str:
    """What a docstring says of a field, its own class's or a base's."""
    for one in owner.__mro__:
        text = one.__doc__ if one is not object else None
        if text and (said := _said(inspect.cleandoc(text), field.name)):
            return said
    return ""


def _said(text: str, name: str) -> str:
    names = rf"(?:\w+, )*{name}(?:, \w+)*"
    listed = re.search(rf"^ +{names}: (.*(?:\n {{8,}}.*)*)", text, re.MULTILINE)
    if listed is not None:
        return _sentence(listed[1]).removesuffix(".")
    for paragraph in text.split("\n\n"):
        whole = f" {_sentence(paragraph)}"
        running = re.search(
            rf"[ ,](?:{name}|{name}(?:, \w+)+|(?:\w+, )+{name})(?: \([^)]*\))?: (.*?)"
            r"(?=[.;] \w+(?:, \w+)*(?: \([^)]*\))?: |$)",
            whole,
        )
        if running is not None:
            return running[1].rstrip(".;")
    return ""


def _table(heads: tuple[str, ...], rows: list[Any]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


PAGES = {"flags": flags, "files": files}


def main() -> None:
    """Writes the pages."""
    for name, made in PAGES.items():
        (REFERENCE / f"{name}.md").write_text(made())


if __name__ == "__main__":
    main()
