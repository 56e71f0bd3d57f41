"""`profile.json`: a profile as text, and back, checked key by key, as people write it by hand, too.

    {"version": 1, "job": "digits", "platform": "local", "channel": "...", "samples": 1438, ...,
     "layers": [{"name": "1 Linear", "parameters": 33280, "trained": 33280, ...}, ...],
     "sizes": [{"memory_mib": 1024, "forward": [{"fixed": 1e-4, "each": 2e-6}, ...],
                "step_s": {"value": 3e-4, "low": 3e-4, "high": 4e-4, "count": 40}, ...}, ...],
     "fit": {"a": ..., "b": ..., "m": ..., "error": ...} | null, ...}

A figure is a number, if somebody says it, or an object with its spread, if it was measured. What is
not limited, infinite or not known is null. Keys that have a usual value may be left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dayfly import dataclass_json, json_files
from dayfly.planning.profile import VERSION, Profile


def dump_profile(profile: Profile) -> dict[str, Any]:
    """For JSON."""
    return {"version": VERSION, **dataclass_json.dump(profile)}


def load_profile(tree: Any, place: str = "the profile", within: str = "") -> Profile:
    """From what JSON has.

    Args:
        tree: what `dump_profile` gave, or a person wrote.
        place: what it is, in errors, such as its file.
        within: where in that it stands.

    Raises:
        RequestError: names the place of a key, type, sign or number of layers that is wrong.
    """
    rest = json_files.versioned(
        tree, "version", VERSION, place, within, "measure it anew with dayfly profile"
    )
    return dataclass_json.read(Profile, rest, place, within=within)


def profile_text(profile: Profile) -> str:
    """What is written to `profile.json`."""
    return json.dumps(dump_profile(profile), indent=1, allow_nan=False) + "\n"


def parse_profile(text: str | bytes, place: str) -> Profile:
    """From a file's text; as `load_profile`."""
    return load_profile(json_files.parse(text, place), place)


def read_profile(file: Path) -> Profile:
    """Raises RequestError, which names file and place, for what is no profile."""
    return parse_profile(json_files.read_bytes(file), str(file))
