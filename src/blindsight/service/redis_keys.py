"""The keys of a shared Redis, and one script.

::

    blindsight:models          a hash of records
    blindsight:deleted         a hash of tombstones, by creation
    blindsight:lives           a hash of lives and their numbers of instances, so that none is left behind by a crash
    blindsight:LIFE:NUMBER     an instance, float32; no {tag}, so that the instances of a model spread over slots
    blindsight:LIFE:count      number of accepted updates plus one; if it is missing, this life is over
    blindsight:LIFE:shown      a stream of what draws showed lately in all processes, until tickets of then have expired
    blindsight:spent:END:PART  a part of the filter of used tickets of one expiry, until they would have expired
    blindsight:admission:KEY   marks of used admission tokens, until their key ends
    blindsight:secret          signs tickets; if it is missing, Redis has lost its data
    blindsight:runs            the servers' runs since the secret was made
    blindsight:filling         held by the process that fills this Redis
    blindsight:alive           written every second, to see that writing works
"""

from blindsight.service.redis_wire import Command
from blindsight.service.store import Record
from blindsight.service.tickets import marks

__all__ = ["ALIVE", "FILLING", "LIVES", "MODELS", "RUNS", "SECRET", "STONES"]
__all__ += ["count_key", "instance_key", "life_keys", "shown_key", "spend_command", "swap", "taken"]

MODELS, STONES, LIVES = "blindsight:models", "blindsight:deleted", "blindsight:lives"
SECRET, RUNS, FILLING, ALIVE = "blindsight:secret", "blindsight:runs", "blindsight:filling", "blindsight:alive"

_PART = 1 << 12  # words of a filter per key: 32 KiB, so that a filter spreads over slots and grows with its use
_SWAP = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
return 1
"""


def swap(model: str, stored: bytes | None, replacement: str) -> Command:
    """Replace a model's record if it still is `stored`; "" removes it."""
    return ("EVAL", _SWAP, 1, MODELS, model, stored or b"", replacement)


def instance_key(record: Record, number: int) -> str:
    """The key of one instance."""
    return f"blindsight:{record.life}:{number}"


def count_key(record: Record) -> str:
    """The key of the number of accepted updates."""
    return f"blindsight:{record.life}:count"


def shown_key(life: str) -> str:
    """The key of what draws showed lately."""
    return f"blindsight:{life}:shown"


def life_keys(life: str, instances: int) -> list[str]:
    """All keys of one life of a model."""
    return [*(f"blindsight:{life}:{number}" for number in range(instances)), f"blindsight:{life}:count"]


def taken(count: bytes | int | None) -> int:
    """The number of updates represented by the value at `count_key`."""
    return max(int(count or 0) - 1, 0)


def spend_command(nonce: bytes, ends: int, words: int) -> tuple[str, Command]:
    """Set the four bits of a used ticket, all at once; their previous values are the answer. And the key."""
    at, one, two, three, four = marks(nonce, words)
    part, start = at // _PART, 64 * (at % _PART)
    key = f"blindsight:spent:{ends}:{part}"
    bits = (start + one, start + two, start + three, start + four)
    return key, ("BITFIELD", key, *(word for bit in bits for word in ("SET", "u1", bit, 1)))
