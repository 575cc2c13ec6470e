"""What a site keeps of each job: the job itself and its public inputs, in one folder named by the job's digest."""

import hashlib
import re
import shutil
from pathlib import Path

from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.job import LARGEST_INPUT, Job

__all__ = ["REFERENCE_FILES", "JobFiles"]

REFERENCE_FILES = "reference-files"
"""Folder, in that of a job, of the public data that came with it."""

_SPARE = 1 << 28  # bytes that nobody else's files may take: this site has its own ledger to write
_DIGEST = re.compile(r"[0-9a-f]{64}")


class JobFiles:
    """The folders of all jobs; no name that the coordinator sends becomes a path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, digest: str) -> Path | None:
        """The folder of a job; None if this is not a digest."""
        return self._folder / digest if _DIGEST.fullmatch(digest) else None

    def folder(self, job: Job) -> Path:
        """The folder of a job, created if missing."""
        place = self._folder / job.digest
        place.mkdir(parents=True, exist_ok=True)
        return place

    def lacking(self, job: Job) -> list[str]:
        """Names of public inputs that are not here yet."""
        return [name for name in job.inputs if not self._input(job, name).exists()]

    def inputs(self, job: Job) -> dict[str, bytes]:
        """All public inputs of a job."""
        return {name: self._input(job, name).read_bytes() for name in job.inputs}

    def keep(self, job: Job, name: str, data: bytes) -> None:
        """Keep a public input, if it is the one that the job names."""
        if len(data) > LARGEST_INPUT:
            raise Declined(Code.too_large, f"{name} has {len(data):,} bytes, and {LARGEST_INPUT:,} are accepted")
        if job.inputs.get(name) != hashlib.sha256(data).hexdigest():
            return
        if shutil.disk_usage(self.folder(job)).free < len(data) + _SPARE:
            raise Declined(Code.disk_full, f"{name} has {len(data):,} bytes, and would leave less than {_SPARE:,} free")
        path = self.folder(job) / self._input(job, name).name
        scratch = path.with_name(f".{path.name}")
        scratch.write_bytes(data)
        scratch.replace(path)

    def forget(self, job: Job) -> None:
        """Delete the public inputs of a job that this site refuses; if it is asked again, they are sent again."""
        for name in job.inputs:
            self._input(job, name).unlink(missing_ok=True)
        shutil.rmtree(self._folder / job.digest / REFERENCE_FILES, ignore_errors=True)

    def _input(self, job: Job, name: str) -> Path:
        return self._folder / job.digest / f"input-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
