"""`python -m tests.coverage FILE`: branch coverage by room, of what pytest-cov wrote as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path


def by_room(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, Counter[str]]:
    """Lines and branches, and how many of them ran, a room each; `dayfly` is its own files."""
    rooms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, file in report["files"].items():
        inside = name.partition("src/dayfly/")[2].split("/")
        # Newer versions of coverage say some things in words, too.
        counts = {what: value for what, value in file["summary"].items() if isinstance(value, int)}
        rooms[inside[0] if len(inside) > 1 else "dayfly"].update(counts)
    return dict(rooms)


def main(path: Path) -> None:
    rooms = by_room(json.loads(path.read_text()))
    rooms["all"] = sum(rooms.values(), Counter())
    print(f"{'room':12}{'lines':>8}{'ran':>8}{'branches':>10}{'ran':>8}")
    for name, of in sorted(rooms.items(), key=lambda room: (room[0] == "all", room[0])):
        lines, branches = of["num_statements"], of["num_branches"]
        ran = of["covered_lines"] / max(1, lines), of["covered_branches"] / max(1, branches)
        print(f"{name:12}{lines:8}{ran[0]:8.1%}{branches:10}{ran[1]:8.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
