"""The page of a run without stages is what it was before there were stages, letter by letter.

The file beside this test holds the text of a page, and the data that its script draws. A change
that is meant: `python -m tests.report.test_same_page`, and read what differs.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from dayfly.runs.report import write_report
from tests.report import made_up
from tests.report.test_page import BILL, EPOCHS

BEFORE = Path(__file__).with_name("same_page.json")


def shown(directory: Path) -> dict[str, object]:
    """What a page says, and what its script draws."""
    history = {"epochs": EPOCHS, "step_loss": [1.0] * 20, "redone_steps": 1}
    run = made_up.write(directory, *made_up.regular(4, 20), history=history, bill=BILL)
    page = write_report(run).read_text()
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    text, _, rest = page.partition('<script type="application/json" id="data">')
    tree = json.loads(rest.partition("</script>")[0])
    text = re.sub(r"script-src '[^']*'", "", text)
    text = re.sub(r"(<h3>Settings</h3>).*?</dl>", r"\1", text)  # a new setting is no new page
    return {"text": text.splitlines(), "timeline": tree["timeline"], "figures": tree["figures"]}


def test_a_page_without_stages_is_what_it_was(tmp_path: Path) -> None:
    assert shown(tmp_path / "run") == json.loads(BEFORE.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        BEFORE.write_text(json.dumps(shown(Path(directory) / "run")) + "\n")
    sys.stdout.write(f"{BEFORE}\n")
