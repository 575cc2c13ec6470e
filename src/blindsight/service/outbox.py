"""The update that a client has paid for and not delivered yet, on disk: it survives a restart of the app."""

import dataclasses
import json
import os
from pathlib import Path

from blindsight.errors import InvalidInput

__all__ = ["Outbox", "Unsent"]


@dataclasses.dataclass(frozen=True)
class Unsent:
    """An update as it will be sent, again and again the same bytes, and what it cost."""

    model: str
    ticket: str
    version: str
    epsilon: float
    delta: float
    body: bytes


class Outbox:
    """At most one update, in a file that is on disk before the update is sent."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def put(self, unsent: Unsent) -> None:
        """Keep it until `clear`."""
        fields = dataclasses.asdict(unsent) | {"body": unsent.body.hex()}
        beside = self.path.with_name(f"{self.path.name}.new")
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(fields, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise InvalidInput(f"the outbox {self.path} cannot be written ({error.strerror})") from error

    def get(self) -> Unsent | None:
        """The update that is waiting, if any."""
        try:
            fields = json.loads(self.path.read_text(encoding="utf-8"))
            return Unsent(**(fields | {"body": bytes.fromhex(fields["body"])}))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"the outbox {self.path} cannot be read ({error}): remove it, and the update in it is lost"
            ) from error

    def clear(self) -> None:
        """It was delivered, or is lost."""
        self.path.unlink(missing_ok=True)
