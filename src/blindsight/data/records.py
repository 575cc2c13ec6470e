"""The records of a CSV file whose lines belong to different clients, so that a broken one breaks nobody else's.

A quotation mark that is never closed makes one cell of all that follows, up to the next mark in somebody else's row.
Here a value goes over several lines only if everything from the record's first letter to its last is CSV to the letter
(RFC 4180: marks around whole cells, doubled inside) with as many cells as the header. Else the record ends where its
line does. Where other rows are one line each and have marks in pairs, no unclosed mark can take one of them away.
"""

import io
import re
from csv import reader
from pathlib import Path

from blindsight.errors import InvalidInput

__all__ = ["client_of", "split_records"]

_END = rb"(?:\r\n|\n|\r|\Z)"


def split_records(data: bytes, separator: str, file: str | Path) -> tuple[bytes, list[str]]:
    """The file less its broken lines, and these; what follows one and has too few cells for a row continues it."""
    if b'"' not in data:
        return data, []
    cut = re.escape(separator.encode())
    one_line = _row(rb'"(?:[^"\r\n]++|"")*+"[^%b\r\n]*+' % cut, rb'(?!")[^%b\r\n]*+' % cut, cut)
    to_the_letter = _row(rb'"(?:[^"]++|"")*+"', rb'[^"%b\r\n]*+' % cut, cut)
    header = one_line.match(data) or to_the_letter.match(data)
    if header is None:
        raise InvalidInput(f"{file}: the header has a quotation mark that is never closed; close it")
    columns, place, kept, broken, is_open = _cells(header[0], separator), header.end(), [header[0]], list[str](), False
    while place < len(data):
        found = one_line.match(data, place)
        if found is None or (is_open and _cells(found[0], separator) != columns):
            found = to_the_letter.match(data, place)
            found = found if found is not None and _cells(found[0], separator) == columns else None
        if found is not None:
            kept.append(found[0])
            place, is_open = found.end(), False
            continue
        line = _LINE.match(data, place)
        if line is None:
            break
        if not is_open or line[0].count(separator.encode()) + 1 >= columns:
            broken.append(line[0].decode(errors="replace").rstrip("\r\n"))
        place, is_open = line.end(), True
    return b"".join(kept), broken


def client_of(line: str, place: int, separator: str) -> str | None:
    """Whose a broken line is, as far as it says: its cell at `place`, be it one that is never closed, or after one."""
    cells = next(reader([line], delimiter=separator), [])
    if cells and place >= len(cells) - 1:  # an open cell has swallowed those that follow
        cells = [*cells[:-1], *cells[-1].split(separator)]
    return cells[place] if place < len(cells) else None


_LINE = re.compile(rb"[^\r\n]*+" + _END)


def _row(marked: bytes, plain: bytes, cut: bytes) -> re.Pattern[bytes]:
    """A record with the end of its line, from two ways to write a cell."""
    cell = rb"(?:%b|%b)" % (marked, plain)
    return re.compile(rb"(?>%b(?:%b%b)*+)" % (cell, cut, cell) + _END)


def _cells(record: bytes, separator: str) -> int:
    lines = io.StringIO(record.decode("utf-8-sig", errors="replace"), newline="")
    return len(next(reader(lines, delimiter=separator), []))
