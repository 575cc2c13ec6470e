"""Everything Blindsight raises on purpose.

::

    BlindsightError                  exit code 2: the request cannot be carried out as asked
    ├── InvalidInput                 a value, file or option that makes no sense (also a ValueError)
    ├── LedgerError                  the ledger cannot be read or written
    │   ├── LedgerFromTheFuture      written by a newer Blindsight
    │   ├── LedgerCorrupted          not a ledger, or damaged
    │   └── LedgerTampered           an entry was edited, removed or reordered (exit code 3)
    └── PrivacyError                 exit code 3: the claim would be false
        ├── UnknownEvent             no accountant can bound this event
        ├── RelationMismatch         sampling, mechanism and neighbouring relation do not fit together
        ├── BudgetExceeded           the release would spend more than the population's budget
        └── UnboundedContribution    a value without a finite bound, or not a finite number

A message is one sentence that says what happened and what to do.
"""

__all__ = [
    "BlindsightError",
    "BudgetExceeded",
    "InvalidInput",
    "LedgerCorrupted",
    "LedgerError",
    "LedgerFromTheFuture",
    "LedgerTampered",
    "PrivacyError",
    "RelationMismatch",
    "UnboundedContribution",
    "UnknownEvent",
]


class BlindsightError(Exception):
    """The root of the tree; `exit_code` is what the command line returns."""

    exit_code = 2


class InvalidInput(BlindsightError, ValueError):
    """A value, file or option that makes no sense."""


class LedgerError(BlindsightError):
    """The ledger cannot be read or written."""


class LedgerFromTheFuture(LedgerError):
    """The ledger was written by a newer version of Blindsight."""


class LedgerCorrupted(LedgerError):
    """The file is not a ledger, or it is damaged."""


class LedgerTampered(LedgerError):
    """An entry was edited, removed or reordered."""

    exit_code = 3


class PrivacyError(BlindsightError):
    """A claim that would be false is refused, never warned about."""

    exit_code = 3


class UnknownEvent(PrivacyError):
    """No accountant here can bound the privacy loss of this event."""


class RelationMismatch(PrivacyError):
    """The sampling, the mechanism and the neighbouring relation do not fit together."""


class BudgetExceeded(PrivacyError):
    """The release would spend more than the population's budget allows."""


class UnboundedContribution(PrivacyError):
    """A client's contribution has no finite bound, or is not a finite number."""
