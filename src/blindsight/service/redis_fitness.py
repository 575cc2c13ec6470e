"""What a Redis says about itself (`INFO`), and whether it may hold the models.

It may not if it keeps an append-only file (a history of every update), if it evicts keys (instances and used tickets
would vanish one by one), if its memory is full, or if it is a replica.
"""

import dataclasses

from blindsight.errors import InvalidInput, PrivacyError
from blindsight.service.store import StoreUnfit

__all__ = ["RedisInfo"]

_NEARLY = 0.9


class _Leaks(StoreUnfit, PrivacyError):
    """This Redis would break a promise to clients."""


class _Unsuited(StoreUnfit, InvalidInput):
    """This Redis would lose data."""


@dataclasses.dataclass(frozen=True)
class RedisInfo:
    """A server's answer to `INFO`."""

    run: str
    """New whenever the server starts."""
    role: str
    keeps_history: bool
    policy: str
    memory: int
    most_memory: int
    """0 is no limit."""

    @classmethod
    def parse(cls, answer: bytes) -> "RedisInfo":
        """The facts in an answer."""
        lines = (line.partition(b":") for line in answer.splitlines())
        facts = {name.decode(): value.decode(errors="replace") for name, _, value in lines}
        return cls(
            run=facts.get("run_id", ""),
            role=facts.get("role", "master"),
            keeps_history=facts.get("aof_enabled", "0") != "0",
            policy=facts.get("maxmemory_policy", "noeviction"),
            memory=int(facts.get("used_memory", "0")),
            most_memory=int(facts.get("maxmemory", "0")),
        )

    @property
    def fault(self) -> StoreUnfit | None:
        """Why this server may not hold the models, or None."""
        if self.keeps_history:
            return _Leaks(
                "this Redis keeps an append-only file, which records every update clients sent, in "
                "order: set appendonly no and delete the file"
            )
        if self.most_memory and self.policy != "noeviction":
            return _Unsuited(
                f"this Redis evicts keys when its memory is full ({self.policy}), and would lose models and used "
                "tickets: set maxmemory-policy noeviction"
            )
        if self.role != "master":
            return _Unsuited("this Redis is a replica, which takes no updates: name the master, or its sentinels")
        if self.most_memory and self.memory >= self.most_memory:
            return _Unsuited("this Redis has no memory left: raise maxmemory")
        return None

    @property
    def is_nearly_full(self) -> bool:
        """Whether little memory is left."""
        return bool(self.most_memory) and self.memory > _NEARLY * self.most_memory
