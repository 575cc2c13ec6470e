"""Numbers as people read them: one way to write a share, an interval and a count, for terminals, pages and reports."""

__all__ = ["counted", "number", "percent", "points", "signed", "span"]


def percent(share: float, digits: int | None = None, *, within: tuple[float, float] | None = None) -> str:
    """A share in per cent, to `digits` significant digits or, by default, as precisely as a noisy estimate deserves.

    The default is whole from 10 % on and one decimal below; as precise as the interval `within`, if `span` shows that
    beside it and rounding would put the share outside.

    >>> [percent(share) for share in (0.8149, 0.0214, -0.006, -0.0004, 0)]
    ['81 %', '2.1 %', '−0.6 %', '0.0 %', '0 %']
    >>> percent(0.9382, 3), percent(0.95, 3), percent(0.0004, 2), percent(1, 2), percent(0.996, 2)
    ('93.8 %', '95 %', '0.04 %', '100 %', '100 %')
    >>> percent(0.373), percent(0.373, within=(0.371, 0.374)), percent(0.087, within=(0.086, 0.11))
    ('37 %', '37.3 %', '9 %')
    """
    value = 100 * share
    if digits is not None:
        rounded = float(f"{value:.{digits}g}")
        return _minus(f"{rounded:.{digits}g} %" if abs(rounded) < 10**digits else f"{rounded:.0f} %")
    decimals = 0 if value == 0 or abs(value) >= 9.95 else 1
    if within is not None:
        low, high = (round(100 * end, _decimals(*within)) for end in within)
        decimals = decimals if low <= round(value, decimals) <= high else _decimals(*within)
    return _minus(f"{value:z.{decimals}f} %")


def span(low: float, high: float) -> str:
    """An interval of shares in per cent, without the sign; one decimal where it is small or narrow.

    >>> span(0.74, 0.88), span(0.011, 0.049), span(0.497, 0.502)
    ('74–88', '1.1–4.9', '49.7–50.2')
    """
    digits = _decimals(low, high)
    return _minus(f"{100 * low:z.{digits}f}–{100 * high:z.{digits}f}")


def number(value: float, digits: int = 3) -> str:
    """A number to `digits` significant digits, whole and with separators from a thousand on.

    >>> number(58147.2), number(-0.25)
    ('58,147', '−0.25')
    """
    return _minus(f"{value:.{digits}g}" if not 1000 <= abs(value) < 1e9 else f"{value:,.0f}")


def points(value: float) -> str:
    """A signed difference of shares in percentage points, without the unit.

    >>> points(0.0312), points(-0.004)
    ('+3.1', '−0.4')
    """
    return _minus(f"{100 * value:+z.1f}")


def signed(value: float) -> str:
    """A number that always shows its sign."""
    return _minus(f"{value:+.3g}")


def counted(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun.

    >>> counted(1, "class", "classes"), counted(3400, "client")
    ('1 class', '3,400 clients')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _decimals(low: float, high: float) -> int:
    """Decimals of an interval in per cent."""
    return 0 if 100 * high >= 10 and round(100 * low) < round(100 * high) else 1


def _minus(text: str) -> str:
    return text.replace("-", "−")
