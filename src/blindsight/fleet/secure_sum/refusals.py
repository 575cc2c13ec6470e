"""Why a party of a secure sum refuses a message: a fixed code for the other side, one sentence for its own log."""

import enum

from blindsight.errors import PrivacyError

__all__ = ["Reason", "Refused"]


class Reason(enum.StrEnum):
    """Codes that may cross the network: none of them depends on anybody's data."""

    TOO_FEW_SITES = "too_few_sites"
    UNKNOWN_SITE = "unknown_site"
    OTHER_BROADCAST = "other_broadcast"
    OTHER_TERMS = "other_terms"
    REPLAYED_ROUND = "replayed_round"
    BAD_SIGNATURE = "bad_signature"
    BAD_SHARE = "bad_share"
    CHANGED_MESSAGE = "changed_message"
    OUT_OF_ORDER = "out_of_order"
    WRONG_SET = "wrong_set"
    SURVIVORS_DISAGREE = "survivors_disagree"
    MALFORMED = "malformed"


class Refused(PrivacyError):
    """A message that would break the secrecy or the exactness of the sum; `reason` is its code."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
