"""HTML pages from templates: one frame, one stylesheet; nothing is fetched, and only a page's own script runs.

`render` fills a template from `templates/`, `part` does so for a part of a page. Every value is escaped unless it is
`Markup`; `filters` format numbers and text, `svg` draws. The Content-Security-Policy admits the stylesheet and the
script by their hashes, and images from the page itself. This package knows no report: callers pass values.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from blindsight.pages import filters, svg

__all__ = ["asset", "card", "contents", "embed", "part", "policy", "render"]

_HEADING = re.compile(r'<h2 id="([\w-]+)">(.*?)</h2>', re.DOTALL)


def render(template: str, **values: object) -> str:
    """The page that `template` makes of `values`; half a letter, which JSON and names of files can hold, is a ?."""
    return _environment().get_template(template).render(values).encode(errors="replace").decode()


def part(template: str, **values: object) -> Markup:
    """A part that `template` makes of `values`, for a page to show as it is."""
    return Markup(render(template, **values))


def embed(page: str, *, title: str) -> str:
    """`page` in a separate frame, for notebooks: neither can touch the other's style or script."""
    return render("embed.html", page=page, title=title)


def card(
    title: str,
    rows: Iterable[Sequence[object]],
    *,
    about: str = "",
    headings: Sequence[str] = (),
    notes: Sequence[str] = (),
    summary: str = "Assumptions",
) -> str:
    """A small table for notebooks, each row under its first cell; notes are folded under their summary.

    Args:
        title: Title of the table.
        rows: Cells of each row.
        about: A few words beside the title.
        headings: Headings of the columns.
        notes: Sentences that are folded at first.
        summary: Label that unfolds the notes.
    """
    values = {"title": title, "rows": [*rows], "about": about, "headings": headings, "notes": notes, "summary": summary}
    return render("card.html", **values)


def contents(body: Markup) -> list[tuple[str, Markup]]:
    """The id and title of every section in a part of a page that templates made, in order."""
    return [(name, Markup(title)) for name, title in _HEADING.findall(str(body))]


def asset(name: str) -> Markup:
    """A stylesheet or script from `assets/`, to inline into a page."""
    return Markup(files("blindsight.pages").joinpath("assets", name).read_text(encoding="utf-8"))


def policy(style: str, script: str = "", *, connects: bool = False) -> str:
    """The Content-Security-Policy of a page with this style and script; `connects` lets it call its own server."""
    rules = ["default-src 'none'", "img-src data:", f"style-src '{_digest(style)}'"]
    rules += [f"script-src '{_digest(script)}'"] if script else []
    rules += ["connect-src 'self'"] if connects else []
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("blindsight.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({name: getattr(filters, name) for name in filters.__all__})
    available: dict[str, Any] = {"asset": asset, "contents": contents, "policy": policy, "svg": svg}
    environment.globals.update(available)
    return environment
