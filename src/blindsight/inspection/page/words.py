"""Numbers and sentences as the page words them."""

import re
from html import escape

__all__ = ["number", "percent", "prose", "signed", "span", "unbroken"]


def number(value: float, digits: int = 3) -> str:
    """A number for reading, with a true minus sign."""
    text = f"{value:.{digits}g}" if not 1000 <= abs(value) < 1e9 else f"{value:,.0f}"
    return text.replace("-", "−")


def signed(value: float) -> str:
    """A number that shows its sign."""
    return f"{value:+.3g}".replace("-", "−")


def percent(share: float) -> str:
    """A share as a percentage: whole, or with the digits that a small one needs."""
    digits = 0 if abs(share) >= 0.1 or share == 0 else 1
    return f"{100 * share:.{digits}f} %".replace("-", "−")


def span(low: float, high: float) -> str:
    """An interval of shares as percentages, with digits where both ends are small."""
    digits = 0 if 100 * high >= 10 else 1
    return f"{100 * low:.{digits}f}–{100 * high:.{digits}f}".replace("-", "−")


def unbroken(text: str) -> str:
    """Escaped, with numbers and their percent signs on one line."""
    return escape(text).replace(" %", "&nbsp;%")


def prose(text: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
