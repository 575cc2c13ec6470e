"""How a CSV file is written: its separator, encoding and decimal mark.

Options that are not given are guessed. For users allowed to see the data, the guess uses the whole file. For private
files it uses only the header line, which is public, so no client's cell can change the separator or the encoding. The
decimal mark of private numbers is not guessed: where the separator is not a comma, each cell may have a decimal point
or a comma.
"""

import codecs
import contextlib
import csv
import dataclasses
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindsight.errors import InvalidInput

__all__ = ["GIVEN", "Dialect", "as_utf8", "guessed", "header_of"]

_SEPARATORS = (",", ";", "\t", "|")
_WORDS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";"}
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_FALLBACK = "cp1252"  # what Windows writes in Western Europe and America


@dataclasses.dataclass(frozen=True)
class Dialect:
    """Separator, encoding and decimal mark of a CSV file; empty if unknown.

    A decimal mark of `.,` means that each cell may have a point or a comma.

    >>> print(Dialect(separator=";", encoding="cp1252", decimal=","))
    separator ;, encoding cp1252, decimal mark ,
    """

    separator: str = ""
    encoding: str = ""
    decimal: str = ""

    def __post_init__(self) -> None:
        separator = _WORDS.get(self.separator, self.separator)
        object.__setattr__(self, "separator", separator)
        if len(separator) > 1 or separator in ('"', "\n", "\r") or not separator.isascii():
            raise InvalidInput(f"separator must be one character, such as ; or tab, got {self.separator!r}")
        if self.decimal not in ("", ".", ",", ".,"):
            raise InvalidInput(f"decimal must be a point or a comma, got {self.decimal!r}")
        try:
            codecs.lookup(self.encoding or "utf-8")
            "".encode(self.encoding or "utf-8")
        except LookupError:
            raise InvalidInput(f"there is no encoding {self.encoding!r}: try utf-8, cp1252 or utf-16") from None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Dialect":
        """The dialect that a loader's options give."""
        return cls(**{name: options[name] for name in GIVEN if options.get(name)})

    def __str__(self) -> str:
        separator = {"\t": "tab", " ": "space"}.get(self.separator, self.separator)
        mark = "point or comma" if self.decimal == ".," else self.decimal
        parts = {"separator": separator, "encoding": self.encoding, "decimal mark": mark}
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


GIVEN = ("separator", "encoding", "decimal")
"""Options of a loader that are fields of a `Dialect`."""


def guessed(data: bytes, given: Dialect, *, client: str = "", file: Path | None = None, private: bool) -> Dialect:
    """The separator and encoding of a file, as given or else guessed: from the header line alone if it is private."""
    encoding = given.encoding or _encoding_of(header_of(data) if private else data)
    if given.separator:
        separator = given.separator
    elif file is not None and ".tsv" in file.name.lower():
        separator = "\t"
    else:
        separator = _separator_of(header_of(as_utf8(data[: 1 << 20], encoding, file, private=True)).decode(), client)
    decimal = given.decimal or ("." if separator == "," else ".,")
    return Dialect(separator, encoding, decimal)


def header_of(data: bytes) -> bytes:
    """The first line that is not empty; a file in UTF-16 is returned whole."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data  # the byte order mark in front decides; nothing else is examined
    line = re.search(rb"[^\r\n]*[^\s][^\r\n]*", data)
    return b"" if line is None else line[0]


def as_utf8(data: bytes, encoding: str, file: Path | None, *, private: bool) -> bytes:
    """The file in UTF-8, without a byte order mark; bytes that are not valid are refused, or replaced if private.

    Private lines are decoded one by one, so that no client's bytes can change how the next line is read.
    """
    if not private:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{file} is not CSV in {encoding.upper()} (byte {error.start:,} is not valid text): write it again, or "
                f"give another encoding"
            ) from error
    elif encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32", "u16", "u32")):
        text = data.decode(encoding, errors="replace")
    else:
        text = "\n".join(line.decode(encoding, errors="replace") for line in data.split(b"\n"))
    return text.removeprefix("\ufeff").encode(errors="replace")


def _encoding_of(data: bytes) -> str:
    """By the byte order mark; else UTF-8, unless no letter beyond ASCII is valid in it: a damaged file stays UTF-8."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return encoding
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        with contextlib.suppress(UnicodeDecodeError):
            data.decode(_FALLBACK)
            return _FALLBACK if data.decode("utf-8", errors="ignore").isascii() else "utf-8"
    return "utf-8"


def _separator_of(header: str, client: str) -> str:
    """The separator that cuts the header into most names, among those that leave the client's column whole."""
    cut = {one: next(csv.reader(io.StringIO(header), delimiter=one), []) for one in _SEPARATORS}
    having = [one for one in _SEPARATORS if client in cut[one]] or [*_SEPARATORS]
    return max(having, key=lambda one: len(cut[one]))
