"""Splits a CSV file into records so that one client's broken line cannot affect another client's rows.

An unclosed quotation mark turns everything up to the next mark, in another client's row, into one cell. Here a value
spans several lines only if the whole record is strict CSV (RFC 4180: marks around whole cells, doubled inside) with as
many cells as the header. Otherwise the record ends with its line. If the other rows are one line each with marks in
pairs, no unclosed mark can remove any of them.
"""

import csv
import io
import re
from pathlib import Path

from blindsight.errors import InvalidInput

__all__ = ["cells_of", "client_of", "one_line_end", "split_records"]

csv.field_size_limit(2**31 - 1)  # by default a text of 128 kB is an error, which one client can cause

_END = rb"(?:\r\n|\n|\r|\Z)"


def one_line_end(data: bytes) -> bytes:
    """The file with a space for each carriage return that does not end a line; the public header shows how lines end.

    Readers treat a carriage return anywhere as a line end. In one client's value it would begin a row of a client that
    does not exist, and change the number of clients.
    """
    header = re.search(rb"\r\n|\n|\r", data)
    return data if header is None or header[0] == b"\r" else re.sub(rb"\r(?!\n)", b" ", data)


def split_records(data: bytes, separator: str, file: str | Path) -> tuple[bytes, list[str]]:
    """The file without its broken lines, and those lines; the next line continues one with too few cells."""
    if b'"' not in data:
        return data, []
    cut = re.escape(separator.encode())
    one_line = _row(rb'"(?:[^"\r\n]++|"")*+"[^%b\r\n]*+' % cut, rb'(?!")[^%b\r\n]*+' % cut, cut)
    strict = _row(rb'"(?:[^"]++|"")*+"', rb'[^"%b\r\n]*+' % cut, cut)
    header = one_line.match(data) or strict.match(data)
    if header is None:
        raise InvalidInput(f"{file}: the header has an unclosed quotation mark; close it")
    columns, place, kept, broken, is_open = _cells(header[0], separator), header.end(), [header[0]], list[str](), False
    while place < len(data):
        record = one_line.match(data, place)
        if record is None or (is_open and _cells(record[0], separator) != columns):
            record = strict.match(data, place)
            record = record if record is not None and _cells(record[0], separator) == columns else None
        if record is not None:
            kept.append(record[0])
            place, is_open = record.end(), False
            continue
        line = _LINE.match(data, place)
        if line is None:
            break
        if not is_open or line[0].count(separator.encode()) + 1 >= columns:
            broken.append(line[0].decode(errors="replace").rstrip("\r\n"))
        place, is_open = line.end(), True
    return b"".join(kept), broken


def client_of(line: str, place: int, separator: str) -> str | None:
    """The client id of a broken line, if it has one: its cell at `place`, even if that is unclosed or follows one."""
    cells = cells_of(line, separator)
    if cells and place >= len(cells) - 1:  # an unclosed cell has swallowed those after it
        cells = [*cells[:-1], *cells[-1].split(separator)]
    return cells[place] if place < len(cells) else None


_LINE = re.compile(rb"[^\r\n]*+" + _END)


def _row(marked: bytes, plain: bytes, cut: bytes) -> re.Pattern[bytes]:
    """A record with its line end, from the quoted and the plain form of a cell."""
    cell = rb"(?:%b|%b)" % (marked, plain)
    return re.compile(rb"(?>%b(?:%b%b)*+)" % (cell, cut, cell) + _END)


def cells_of(record: str, separator: str) -> list[str]:
    """The cells of the first record, however long they are."""
    return next(csv.reader(io.StringIO(record, newline=""), delimiter=separator), [])


def _cells(record: bytes, separator: str) -> int:
    return len(cells_of(record.decode("utf-8-sig", errors="replace"), separator))
