"""Which files other processes have locked, without touching a lock: trying one could make a run that begins fail."""

from pathlib import Path

__all__ = ["locked_inodes"]

_TABLE = Path("/proc/locks")


def locked_inodes(table: Path = _TABLE) -> frozenset[int]:
    """The inode of every file with an exclusive lock; empty where the system does not list them.

    Devices are left out: layered file systems name one here and another in `stat`.
    """
    try:
        lines = table.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return frozenset()
    return frozenset(found for line in lines if (found := _inode_of(line)) is not None)


def _inode_of(line: str) -> int | None:
    """The file of a line such as `1: FLOCK  ADVISORY  WRITE 431 fe:01:52443 0 EOF`; None for a waiting process."""
    words = line.split()
    if len(words) < 6 or words[1] != "FLOCK" or words[3] != "WRITE":
        return None
    inode = words[5].rpartition(":")[2]
    return int(inode) if inode.isdigit() else None
