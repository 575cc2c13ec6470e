"""What templates do to values: numbers as in `wording`, sentences with code and unbroken units, images as data URIs."""

import base64
import re

from markupsafe import Markup, escape

from blindsight.wording import counted, number, percent, signed, span

__all__ = [
    "arm",
    "breakable",
    "counted",
    "data_uri",
    "number",
    "p_value",
    "percent",
    "prose",
    "signed",
    "span",
    "unbroken",
]

COLOURS = 6


def arm(place: int) -> str:
    """The CSS class that gives the arm at `place` its colour."""
    return f"arm-{place % COLOURS}"


def data_uri(png: bytes) -> str:
    """A PNG as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def p_value(value: float) -> str:
    """A p-value with its relation sign."""
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.2g}"


def unbroken(text: str) -> Markup:
    """A sentence in which numbers stay on one line with their per cent signs."""
    return Markup(str(escape(text)).replace(" %", "&nbsp;%"))


def breakable(name: str) -> Markup:
    """A dotted name that may continue on the next line after a dot or an underscore."""
    return Markup(re.sub(r"([._])", r"\1<wbr>", str(escape(name))))


def prose(text: str) -> Markup:
    """A sentence in which text between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
