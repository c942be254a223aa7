"""Limits of submissions per time, tenant by tenant: a bucket of tokens for each. Pure.

>>> limits = Rates()
>>> alice = Quota("alice", per_minute=6)
>>> limits.check(alice, 5, now_s=0.0)
>>> limits.take(alice, 5, now_s=0.0)
>>> limits.check(alice, 3, now_s=10.0)
Traceback (most recent call last):
    ...
ina.service.errors.TooMany: tenant alice may submit 6 jobs a minute; 3 more can be submitted in 10.0 s
"""

from __future__ import annotations

from controller.errors import BadSpec
from ina.service.errors import TooMany
from ina.service.quotas import Quota


class Rates:
    """How many jobs each tenant may still submit; a bucket holds those of a minute, and is full at first."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        """What was in it, and when."""

    def check(self, quota: Quota | None, jobs: int, *, now_s: float) -> None:
        """Raise TooMany if a tenant may not submit so many jobs now, BadSpec if it may never at once."""
        if quota is None or quota.per_minute is None:
            return
        most = quota.per_minute
        if jobs > most:
            raise BadSpec(f"{jobs} jobs at once; tenant {quota.tenant} may submit {most} a minute")
        lacks = jobs - self._level(quota.tenant, most, now_s)
        if lacks > 0:
            wait_s = lacks * 60 / most
            raise TooMany(
                f"tenant {quota.tenant} may submit {most} jobs a minute; {jobs} more can be submitted in"
                f" {wait_s:.1f} s",
                wait_s,
            )

    def take(self, quota: Quota | None, jobs: int, *, now_s: float) -> None:
        """Note that a tenant has submitted so many jobs."""
        if quota is not None and quota.per_minute is not None:
            level = self._level(quota.tenant, quota.per_minute, now_s)
            self._buckets[quota.tenant] = level - jobs, now_s

    def _level(self, tenant: str, per_minute: int, now_s: float) -> float:
        held, at_s = self._buckets.get(tenant, (float(per_minute), now_s))
        return min(float(per_minute), held + (now_s - at_s) * per_minute / 60)
