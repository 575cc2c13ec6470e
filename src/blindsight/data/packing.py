"""A public population as bytes, to send it to sites: the files of `Population.save` in one uncompressed archive."""

import io
import re
import tempfile
import zipfile
from pathlib import Path

from blindsight.data.population import Population, open_population
from blindsight.errors import InvalidInput

__all__ = ["LARGEST_POPULATION", "pack", "unpack"]

LARGEST_POPULATION = 1 << 29
"""Bytes of public data that a site accepts."""

_FILE = re.compile(r"population\.json|sizes\.npy|column-\d{1,4}(\.lengths)?\.npy")
_AT_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal data give equal bytes


def pack(population: Population) -> bytes:
    """The population as bytes: equal bytes for equal data."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(out, "w") as archive:
        folder = population.save(Path(scratch) / "population")
        for path in sorted(folder.iterdir()):
            archive.writestr(zipfile.ZipInfo(path.name, _AT_EPOCH), path.read_bytes())
    return out.getvalue()


def unpack(data: bytes, folder: Path) -> Population:
    """The population that was packed, kept in the new `folder`; anything else is refused."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            total = sum(entry.file_size for entry in entries)
            if total > LARGEST_POPULATION or not all(map(_is_plain, entries)):
                raise InvalidInput(f"a packed population has at most {LARGEST_POPULATION:,} bytes, and its files only")
            folder.mkdir(parents=True, exist_ok=True)
            # last the header, which marks the folder as complete
            for entry in sorted(entries, key=lambda entry: entry.filename == "population.json"):
                (folder / entry.filename).write_bytes(archive.read(entry))
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise InvalidInput(f"not a packed population, or a damaged one ({error})") from error
    return open_population(folder)


def _is_plain(entry: zipfile.ZipInfo) -> bool:
    """Whether it is an uncompressed file of a population: a compressed one may expand without end."""
    is_compressed = entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1  # or encrypted
    return not is_compressed and _FILE.fullmatch(entry.filename) is not None
