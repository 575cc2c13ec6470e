"""Randomness of the operating system, asked for by the page: a system call for each draw costs more than the draw."""

import os

__all__ = ["random_bytes", "random_index"]

_PAGE = 4096
_page = b""
_at = _PAGE


def random_bytes(count: int) -> bytes:
    """So many bytes, of which none is ever given twice."""
    global _page, _at
    if _at + count > _PAGE:
        _page, _at = os.urandom(_PAGE), 0
    _at += count
    return _page[_at - count : _at]


def random_index(count: int) -> int:
    """A number below `count`, off uniform by less than 2^-50."""
    return int.from_bytes(random_bytes(8), "little") % count


def _forget() -> None:
    global _at
    _at = _PAGE


os.register_at_fork(after_in_child=_forget)  # else parent and child would go on with the same page
