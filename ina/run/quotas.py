"""Quotas and reservations of tenants: which jobs the core gets now, and why other jobs wait. No I/O.

A job uses its tenant's quota from its submission to the core until it is over, whether it runs or waits
there. The jobs of one tenant that must wait for the quota are submitted to the core in order of arrival; they
do not block other tenants' jobs. A token bucket limits the number of jobs that a tenant may submit in a
minute (`Rates`).

>>> shares = Quotas(16, {"a": Quota("a", gpus=8)})
>>> shares.take("one", "a", 6)
''
>>> shares.take("two", "a", 4)
'tenant a: 6 of 8 GPUs are in use; the job needs 4'
>>> shares.take("three", "b", 8)
''
>>> shares.end("one")
['two']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from controller.vocabulary.errors import BadSpec, plural
from ina.errors import TooMany
from ina.run.views import QuotaView


@dataclass(frozen=True, slots=True)
class Quota:
    """A tenant's quota and reservation. Raises BadSpec.

    Attributes:
        tenant: The tenant's name.
        gpus: Maximum number of GPUs that the tenant's jobs may use at once; None: no limit.
        reserved: Number of GPUs that are kept free for this tenant's jobs.
        per_minute: Maximum number of jobs that the tenant may submit in a minute; None: no limit.
    """

    tenant: str
    gpus: int | None = None
    reserved: int = 0
    per_minute: int | None = None

    def __post_init__(self) -> None:
        if self.gpus is not None and self.reserved > self.gpus:
            raise BadSpec(
                f"tenant {self.tenant!r}: reserved = {self.reserved}: want 0 or more, and at most its gpus,"
                f" {self.gpus}",
                where=("reserved",),
            )


class _Wish(NamedTuple):
    job: str
    tenant: str
    gpus: int


class Quotas:
    """Decides which jobs of tenants may use some of `gpus` GPUs now, and which must wait for a quota."""

    def __init__(self, gpus: int, quotas: Mapping[str, Quota] | None = None) -> None:
        self.gpus = gpus
        self.quotas = dict(quotas or {})
        """Quotas by tenant."""
        self._inside: dict[str, _Wish] = {}
        self._outside: dict[str, _Wish] = {}
        self._used: Counter[str] = Counter()
        """By tenant, the number of GPUs that the tenant's jobs in the core need."""

    @property
    def waiting(self) -> Collection[str]:
        """Ids of the jobs that wait for their tenants' quotas."""
        return self._outside.keys()

    def check(self, quota: Quota) -> None:
        """Raise BadSpec if this quota and the other tenants' quotas together reserve more GPUs than exist."""
        others = sum(each.reserved for each in self.quotas.values() if each.tenant != quota.tenant)
        if others + quota.reserved > self.gpus:
            raise BadSpec(
                f"tenant {quota.tenant!r}: reserved = {quota.reserved}: want at most {self.gpus - others};"
                f" the cluster has {plural(self.gpus, 'GPU')}, and {others} are reserved for other tenants"
            )

    def never(self, tenant: str, gpus: int) -> str:
        """Return why a tenant's job that needs `gpus` GPUs can never start; "": it can."""
        most = self._most(tenant)
        return "" if gpus <= most else f"tenant {tenant} may use {plural(most, 'GPU')}; the job needs {gpus}"

    def take(self, job: str, tenant: str, gpus: int) -> str:
        """Add a job that needs `gpus` GPUs; return why it must wait, or "" if the core may get it now."""
        wish = _Wish(job, tenant, gpus)
        why = self._why(wish)
        before = (
            None if why else next((n for n, each in self._outside.items() if each.tenant == tenant), None)
        )
        if before is not None:
            why = f"tenant {tenant}: job {before} was submitted earlier, and waits for GPUs, too"
        if why:
            self._outside[job] = wish
        else:
            self._enter(wish)
        return why

    def again(self, job: str, tenant: str, gpus: int) -> None:
        """Add a job that is retried. It uses GPUs of its tenant's quota, but never waits for the quota."""
        self._enter(_Wish(job, tenant, gpus))

    def end(self, job: str) -> list[str]:
        """Remove a job that is over; return the waiting jobs that the core may get now, in order."""
        self._leave(job)
        self._outside.pop(job, None)
        return self._admitted()

    def grant(self, quota: Quota) -> list[str]:
        """Set a tenant's quota; return the waiting jobs that the core may get now."""
        self.quotas[quota.tenant] = quota
        return self._admitted()

    def resize(self, gpus: int) -> list[str]:
        """Set the number of GPUs; return the waiting jobs that the core may get now.

        `gpus` may be smaller than the number of reserved GPUs.
        """
        self.gpus = gpus
        return self._admitted()

    def remove(self, tenant: str) -> list[str]:
        """Remove a tenant's quota; return the waiting jobs that the core may get now."""
        del self.quotas[tenant]
        return self._admitted()

    def waits(self, job: str) -> str | None:
        """Return why a job waits for its tenant's quota; None: it does not wait."""
        wish = self._outside.get(job)
        return (
            None
            if wish is None
            else self._why(wish)
            or f"tenant {wish.tenant}: jobs that were submitted earlier wait for GPUs, too"
        )

    def states(self) -> list[QuotaView]:
        """Return the quota and the usage of each tenant that has a quota, by the tenants' names in order."""
        return [
            {
                "tenant": tenant,
                "gpus": quota.gpus,
                "reserved": quota.reserved,
                "per_minute": quota.per_minute,
                "used": self._used[tenant],
                "waiting": [each.job for each in self._outside.values() if each.tenant == tenant],
            }
            for tenant, quota in sorted(self.quotas.items())
        ]

    def _admitted(self) -> list[str]:
        found: list[str] = []
        held_up: set[str] = set()
        for wish in list(self._outside.values()):
            if wish.tenant in held_up or self._why(wish):
                held_up.add(wish.tenant)
                continue
            self._enter(self._outside.pop(wish.job))
            found.append(wish.job)
        return found

    def _why(self, wish: _Wish) -> str:
        quota = self.quotas.get(wish.tenant)
        used = self._used[wish.tenant]
        if quota is not None and quota.gpus is not None and used + wish.gpus > quota.gpus:
            return f"tenant {wish.tenant}: {used} of {quota.gpus} GPUs are in use; the job needs {wish.gpus}"
        kept = sum(each.reserved for each in self.quotas.values())
        if not kept:
            return ""
        own = self._reserved(wish.tenant)
        taken = sum(max(0, n - self._reserved(each)) for each, n in self._used.items())
        extra = max(0, used + wish.gpus - own) - max(0, used - own)
        if extra > 0 and taken + extra > (free := max(0, self.gpus - kept)):
            others = kept - own
            return (
                f"{others} of {self.gpus} GPUs are reserved for other tenants, and {taken} of the other"
                f" {free} are in use; the job needs {extra}"
            )
        return ""

    def _most(self, tenant: str) -> int:
        quota = self.quotas.get(tenant)
        others = sum(each.reserved for each in self.quotas.values() if each.tenant != tenant)
        most = self.gpus - others
        return most if quota is None or quota.gpus is None else min(most, quota.gpus)

    def _enter(self, wish: _Wish) -> None:
        self._leave(wish.job)
        self._inside[wish.job] = wish
        self._used[wish.tenant] += wish.gpus

    def _leave(self, job: str) -> None:
        if (wish := self._inside.pop(job, None)) is not None:
            self._used[wish.tenant] -= wish.gpus

    def _reserved(self, tenant: str) -> int:
        quota = self.quotas.get(tenant)
        return 0 if quota is None else quota.reserved


class Rates:
    """Limits the number of jobs that tenants submit in a minute.

    Each tenant has a token bucket. It holds as many jobs as the tenant may submit in a minute, and is full at
    first.

    >>> limits = Rates()
    >>> alice = Quota("alice", per_minute=6)
    >>> limits.check(alice, 5, now_s=0.0)
    >>> limits.take(alice, 5, now_s=0.0)
    >>> limits.check(alice, 3, now_s=10.0)
    Traceback (most recent call last):
        ...
    ina.errors.TooMany: tenant alice may submit 6 jobs a minute; 3 more can be submitted in 10.0 s
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        """By tenant, the number of jobs that the tenant could still submit at once after its last submission,
        and the time of that submission, in s."""

    def check(self, quota: Quota | None, jobs: int, *, now_s: float) -> None:
        """Raise TooMany if a tenant may not submit `jobs` jobs now.

        Raises BadSpec if `jobs` is more than the tenant may submit in a minute. `quota` is the tenant's
        quota.
        """
        if quota is None or quota.per_minute is None:
            return
        most = quota.per_minute
        if jobs > most:
            raise BadSpec(f"{jobs} jobs at once; tenant {quota.tenant} may submit {most} a minute")
        excess = jobs - self._level(quota.tenant, most, now_s)
        if excess > 0:
            wait_s = excess * 60 / most
            raise TooMany(
                f"tenant {quota.tenant} may submit {most} jobs a minute; {jobs} more can be submitted in"
                f" {wait_s:.1f} s",
                wait_s,
            )

    def take(self, quota: Quota | None, jobs: int, *, now_s: float) -> None:
        """Record that the tenant of `quota` has submitted `jobs` jobs."""
        if quota is not None and quota.per_minute is not None:
            level = self._level(quota.tenant, quota.per_minute, now_s)
            self._buckets[quota.tenant] = level - jobs, now_s

    def _level(self, tenant: str, per_minute: int, now_s: float) -> float:
        held, at_s = self._buckets.get(tenant, (float(per_minute), now_s))
        return min(float(per_minute), held + (now_s - at_s) * per_minute / 60)
