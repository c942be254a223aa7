"""Quotas as a resource: what ``PUT /v1/quotas/TENANT`` takes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StrictInt

MOST = 1_000_000_000
Number = Annotated[StrictInt, Field(ge=0, le=MOST)]
Tenant = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="The name of a tenant.")
]


class Wanted(BaseModel):
    """A quota and a reservation, as they are asked for."""

    model_config = ConfigDict(extra="forbid")

    gpus: Number | None = Field(
        default=None, description="Most GPUs of the tenant's jobs at once; more jobs wait. null: no limit."
    )
    per_minute: Annotated[StrictInt, Field(ge=1, le=MOST)] | None = Field(
        default=None, description="Most jobs that the tenant may submit in a minute. null: no limit."
    )
    reserved: Number = Field(default=0, description="GPUs that other tenants leave free for it.")
