"""The documentation as a site: `make docs` builds it into build/site, with warnings as errors.

The pages are plain Markdown, read on the repository's host as well. Some pages stand elsewhere in
the repository; the site has them under the names of `ELSEWHERE`, and links lead there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent
#: Pages of the site whose text stands elsewhere.
ELSEWHERE = {
    "contributing": ROOT / "CONTRIBUTING.md",
    "changelog": ROOT / "CHANGELOG.md",
    "benchmarks": ROOT / "benchmarks" / "README.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")

project = "dayfly"
html_title = "dayfly"
author = "the dayfly developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["papers"]
html_theme = "furo"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
# Headings can be linked to, as on the repository's host.
myst_heading_anchors = 3
autodoc_default_options = {"member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
python_display_short_literal_types = True
napoleon_numpy_docstring = False
# As docstrings mean it: `code`, and after `Returns:` are sentences, without a type.
default_role = "code"
napoleon_custom_sections = ["Returns"]
# Quotes stay as they are written.
smartquotes_action = "D"
highlight_language = "text"
# A name of another package is no target here, and a name of dayfly's own inside is none of the
# reference's: links in pages are all checked.
nitpick_ignore_regex = [("py:.*", ".*")]


def led_home(text: str, directory: Path, page: Path) -> str:
    """A page's text with the links of files led to the site's pages.

    Args:
        text: in Markdown.
        directory: from which its links begin.
        page: the file of the site that gets it, in `DOCS`.
    """
    names = {file: f"{name}.md" for name, file in ELSEWHERE.items()}

    def led(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        file = (directory / target).resolve()
        if file.is_dir():  # nothing to open
            return words
        end = DOCS / names[file] if file in names else file
        return f"[{words}]({os.path.relpath(end, page.parent)}{anchor})"

    return _LINK.sub(led, text)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Sphinx reads a page: gives it the text that stands elsewhere, and leads its links."""
    page = (DOCS / name).with_suffix(".md")
    file = ELSEWHERE.get(name, page)
    app.env.note_dependency(file)
    source[0] = led_home(file.read_text(), file.parent, page)


def signed(
    app: Sphinx, what: str, name: str, item: object, options: object, signature: str, result: str
) -> tuple[str, str] | None:
    """A signature that can be parsed: a dataclass names no default that a function makes."""
    return (signature.replace("<factory>", "..."), result) if signature else None


def drawn(
    app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]
) -> None:
    """A docstring's drawing, which is indented, is shown as it stands."""
    shown: list[str] = []
    for line in lines:
        said = next((one for one in reversed(shown) if one.strip()), "")
        after_text = bool(shown) and not shown[-1].strip() and not said.startswith((" ", ".", ":"))
        if line.startswith("    ") and after_text:
            shown += ["::", ""]
        shown.append(line)
    lines[:] = shown


def setup(app: Sphinx) -> None:
    """Sphinx begins."""
    app.connect("source-read", read)
    app.connect("autodoc-process-signature", signed)
    app.connect("autodoc-process-docstring", drawn)
