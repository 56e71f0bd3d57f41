"""What all pages have in common: one file of HTML that loads nothing, with its style in it."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources
from string import Template

from dayfly.runs.report.markup import text


def document(
    template: str,
    parts: dict[str, str],
    *,
    brand: str,
    title: str,
    lead: str,
    styles: tuple[str, ...] = (),
    scripts: tuple[str, ...] = (),
    beside_title: str = "",
    beside_lead: str = "",
) -> str:
    """Returns a page.

    Args:
        template: asset with the page's sections.
        parts: HTML of each name in it.
        brand: the command that made it.
        title: plain text, as are `brand` and `lead`.
        lead: what the page shows, in a sentence.
        styles: assets with more rules than all pages have.
        scripts: assets with its script. Nothing else may run on the page, and nothing is loaded.
        beside_title: HTML at the end of the title.
        beside_lead: HTML at the right of title and lead.
    """
    script = "\n".join(asset(name) for name in scripts)
    return Template(asset("document.html")).substitute(
        policy=_policy(script),
        brand=text(brand),
        title=text(title),
        lead=text(lead),
        style="\n".join([_colours(by_button=bool(scripts)), *map(asset, styles)]),
        beside_title=beside_title,
        beside_lead=beside_lead,
        body=Template(asset(template)).substitute(parts),
        script=f"<script>{script}</script>" if script else "",
    )


def asset(name: str) -> str:
    """Returns the text of a file of `assets/`."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """The page may run this script and nothing else, and load nothing at all."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if not script:
        return policy
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"{policy}; script-src 'sha256-{digest}'"


def _colours(*, by_button: bool) -> str:
    """The rules of all pages; without a script no button chooses the dark colours, so the reader's
    system does."""
    style = asset("style.css")
    if by_button:
        return style
    dark = re.search(r':root\[data-theme="dark"\] (\{[^}]*\})', style)
    assert dark is not None, "style.css has dark colours"
    return f"{style}\n@media (prefers-color-scheme: dark) {{ :root {dark[1]} }}"
