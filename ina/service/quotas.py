"""How much a tenant may have submitted at a time: jobs that are not over, and the GPUs that they ask for.

As with Kubernetes' ResourceQuota, what exceeds a quota is refused when it is submitted, with the numbers;
what was submitted before stays when a quota is lowered. Kept in a file of the state's folder.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from controller.vocabulary import Job
from ina.service import files
from ina.service.errors import Conflict, StoreError, Unknown
from ina.service.records import JobRecord

FILE = "quotas.json"


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may have at a time.

    Attributes:
        tenant: The tenant.
        jobs: Most jobs that are not over; None: any number.
        gpus: Most GPUs that these ask for, whether they run or wait; None: any number.
    """

    tenant: str
    jobs: int | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """What a tenant has: jobs that are not over, and the GPUs that they ask for."""

    jobs: int = 0
    gpus: int = 0


def use_of(records: Iterable[JobRecord], tenant: str) -> Use:
    """Return what a tenant has."""
    own = [each.submitted.job for each in records if each.submitted.tenant == tenant and not each.over]
    return Use(len(own), sum(job.gpus for job in own))


class Quotas:
    """The quotas of a state. One process changes them: the service."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = threading.Lock()
        self._by_tenant: dict[str, Quota] | None = None

    def all(self) -> list[Quota]:
        """Return all quotas, by tenant. Raises StoreError."""
        return [quota for _, quota in sorted(self._read().items())]

    def of(self, tenant: str) -> Quota:
        """Return a tenant's quota. Raises Unknown, StoreError."""
        try:
            return self._read()[tenant]
        except KeyError:
            raise Unknown(f"tenant {tenant[:80]!r} has no quota") from None

    def set(self, quota: Quota) -> None:
        """Give a tenant a quota, in the place of the one before. Raises StoreError."""
        self._write({**self._read(), quota.tenant: quota})

    def remove(self, tenant: str) -> None:
        """Take a tenant's quota away. Raises Unknown, StoreError."""
        self.of(tenant)
        self._write({name: quota for name, quota in self._read().items() if name != tenant})

    def limits(self, tenant: str) -> bool:
        """Return whether a tenant has a quota. Raises StoreError."""
        return tenant in self._read()

    def check(self, jobs: Sequence[Job], tenant: str, records: Iterable[JobRecord]) -> None:
        """Raise Conflict if these jobs exceed the tenant's quota, with the numbers."""
        quota = self._read().get(tenant)
        if quota is None:
            return
        has = use_of(records, tenant)
        asked = Use(len(jobs), sum(job.gpus for job in jobs))
        for what, used, more, most in (
            ("jobs", has.jobs, asked.jobs, quota.jobs),
            ("GPUs", has.gpus, asked.gpus, quota.gpus),
        ):
            if most is not None and used + more > most:
                raise Conflict(
                    f"the quota of tenant {tenant!r} is {most} {what} at a time; {used} are in use by jobs"
                    f" that are not over, and {more} more are asked for"
                )

    def _read(self) -> dict[str, Quota]:
        if self._by_tenant is None:
            try:
                found = files.read(self._path) or []
                self._by_tenant = {each["tenant"]: Quota(**each) for each in found}
            except OSError as error:
                raise StoreError(f"{self._path}: {error.strerror}") from error
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"{self._path} is damaged; nobody may submit. Remove it, and set the quotas again: 'ina"
                    " quota TENANT --jobs N'"
                ) from error
        return self._by_tenant

    def _write(self, quotas: dict[str, Quota]) -> None:
        with self._lock:
            try:
                files.write(self._path, [asdict(quota) for quota in quotas.values()])
            except OSError as error:
                raise StoreError(f"{self._path}: {error.strerror}") from error
            self._by_tenant = quotas
