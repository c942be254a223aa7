"""A policy file that is read again while the service runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from controller.errors import BadSpec
from ina.service.errors import ServiceError
from ina.service.policies import Policies, read_policies
from ina.service.service import Service

_log = logging.getLogger(__name__)


def reloading(service: Service, path: Path, defaults: Policies) -> Callable[[], None]:
    """Return what has the service decide by what a policy file says now, as a signal's handler.

    A file that is wrong, or names policies that cannot go on from here, changes nothing; a warning says why.

    Args:
        service: The service.
        path: The file.
        defaults: What the file leaves out.
    """
    under_way: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            policies = read_policies(path, defaults)
            await service.reload(policies)
        except (BadSpec, ServiceError) as error:
            _log.warning("policies stay as they are: %s", error)
        else:
            _log.info("policies: %s", policies.names)

    def handle() -> None:
        task = asyncio.get_running_loop().create_task(reload())
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    return handle
