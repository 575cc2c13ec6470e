"""Numbers as people read them: one way to write a share, an interval and a count, for terminals, pages and reports."""

__all__ = ["counted", "number", "percent", "signed", "span"]


def percent(share: float, digits: int | None = None) -> str:
    """A share in per cent, to `digits` significant digits or, by default, with the digits an estimate deserves.

    The default is whole from 10 % on and one decimal below; a smaller share keeps one digit instead of becoming zero.

    >>> [percent(share) for share in (0.8149, 0.0214, 0.0004, -0.006, 0)]
    ['81 %', '2.1 %', '0.04 %', '−0.6 %', '0 %']
    >>> percent(0.9382, 3), percent(0.95, 3), percent(0.125, 3)
    ('93.8 %', '95 %', '12.5 %')
    """
    value = 100 * share
    if digits is not None:
        form = f".{digits}g"
    elif value == 0 or abs(value) >= 9.95:
        form = ".0f"
    else:
        form = ".1f" if abs(value) >= 0.05 else ".1g"
    return _minus(f"{value:{form}} %")


def span(low: float, high: float) -> str:
    """An interval of shares in per cent, without the sign; one decimal where both ends are small.

    >>> span(0.74, 0.88), span(0.011, 0.049)
    ('74–88', '1.1–4.9')
    """
    digits = 0 if 100 * high >= 10 else 1
    return _minus(f"{100 * low:.{digits}f}–{100 * high:.{digits}f}")


def number(value: float, digits: int = 3) -> str:
    """A number to `digits` significant digits, whole and with separators from a thousand on.

    >>> number(58147.2), number(-0.25)
    ('58,147', '−0.25')
    """
    return _minus(f"{value:.{digits}g}" if not 1000 <= abs(value) < 1e9 else f"{value:,.0f}")


def signed(value: float) -> str:
    """A number that always shows its sign."""
    return _minus(f"{value:+.3g}")


def counted(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun.

    >>> counted(1, "class", "classes"), counted(3400, "client")
    ('1 class', '3,400 clients')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _minus(text: str) -> str:
    return text.replace("-", "−")
