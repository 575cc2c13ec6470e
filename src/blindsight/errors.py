"""The errors that Blindsight raises on purpose.

::

    BlindsightError                  exit code 2: the request cannot be carried out
    ├── InvalidInput                 an invalid value, file or option (also a ValueError)
    ├── Unanswered                   too few have answered so far: the same request, asked again, continues
    ├── HostLost                     another host of the run died or hangs (exit code 4: start it again)
    ├── LedgerError                  the ledger cannot be read or written
    │   ├── LedgerFromTheFuture      written by a newer Blindsight
    │   ├── LedgerCorrupted          not a ledger, or damaged
    │   └── LedgerTampered           an entry was edited, removed or reordered (exit code 3)
    └── PrivacyError                 exit code 3: the claim would be false
        ├── UnknownEvent             no accountant can bound this event
        ├── RelationMismatch         sampling, mechanism and neighbouring relation are incompatible
        ├── BudgetExceeded           the release would exceed the population's budget
        └── UnboundedContribution    a value that is unbounded or not finite

A message is one sentence: what happened, and what to do.
"""

__all__ = [
    "BlindsightError",
    "BudgetExceeded",
    "HostLost",
    "InvalidInput",
    "LedgerCorrupted",
    "LedgerError",
    "LedgerFromTheFuture",
    "LedgerTampered",
    "PrivacyError",
    "RelationMismatch",
    "Unanswered",
    "UnboundedContribution",
    "UnknownEvent",
]


class BlindsightError(Exception):
    """The base class; `exit_code` is what the command line returns."""

    exit_code = 2


class InvalidInput(BlindsightError, ValueError):
    """An invalid value, file or option."""


class Unanswered(BlindsightError):
    """Too few have answered so far, and enough still can: the same request, repeated, continues."""


class HostLost(BlindsightError):
    """Another host of the run died or hangs; the run resumes when all are started again."""

    exit_code = 4


class LedgerError(BlindsightError):
    """The ledger cannot be read or written."""


class LedgerFromTheFuture(LedgerError):
    """The ledger was written by a newer version of Blindsight."""


class LedgerCorrupted(LedgerError):
    """The file is not a ledger, or is damaged."""


class LedgerTampered(LedgerError):
    """An entry was edited, removed or reordered."""

    exit_code = 3


class PrivacyError(BlindsightError):
    """A false privacy claim, which is refused, not warned about."""

    exit_code = 3


class UnknownEvent(PrivacyError):
    """No accountant here can bound the privacy loss of this event."""


class RelationMismatch(PrivacyError):
    """The sampling, the mechanism and the neighbouring relation are incompatible."""


class BudgetExceeded(PrivacyError):
    """The release would exceed the population's budget."""


class UnboundedContribution(PrivacyError):
    """A client's contribution is unbounded or not finite."""
