"""Quotas as a resource: ``/v1/quotas``, and ``/v1/quotas/TENANT``."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from ina.service import views
from ina.service.quotas import Quota, Use

MOST = 1_000_000_000
Limit = Annotated[StrictInt, Field(ge=0, le=MOST)]
Tenant = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="The name of a tenant.")
]


class Wanted(BaseModel):
    """A quota as it is asked for; null: no limit."""

    model_config = ConfigDict(extra="forbid")

    jobs: Limit | None = Field(default=None, description="Most jobs that are not over.")
    gpus: Limit | None = Field(default=None, description="Most GPUs that these jobs ask for.")


def of_quota(quota: Quota, use: Use) -> views.QuotaView:
    """Return a quota as JSON, with what is used of it."""
    return {
        "tenant": quota.tenant,
        "jobs": quota.jobs,
        "gpus": quota.gpus,
        "used_jobs": use.jobs,
        "used_gpus": use.gpus,
    }
