"""How the ranks of a process group come to a job of the switch."""

from __future__ import annotations

import secrets
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import hostlib
from hostlib.communicator import Communicator
from hostlib.config import JobConfig
from hostlib.errors import ConfigError
from hostlib.hosting import meeting
from hostlib.settings import Settings


def join(store: dist.Store, rank: int, size: int, timeout: timedelta, settings: Settings) -> Communicator:
    """Join the job of ``INA_JOB``, or one that rank 0 has admitted; or use that of `hostlib.init`.

    All ranks wait at most `timeout` for each other in a collective.

    Raises:
        ConfigError: the job has other ranks than the group, or ranks are on several machines.
        RendezvousError: the job could not be joined.
    """
    if not hostlib.is_initialized():
        if config := JobConfig.from_environment():
            _check(config.rank, config.size, rank, size)
            hostlib.init(_patient(config, timeout))
        else:
            with meeting(rank, size, _key(store, rank), settings) as found:
                hostlib.init(_patient(found, timeout))
    communicator = hostlib.current()
    _check(communicator.rank, communicator.size, rank, size)
    return communicator


def _patient(config: JobConfig, timeout: timedelta) -> JobConfig:
    seconds = timeout.total_seconds()
    return replace(config, timeout_s=min(config.timeout_s, seconds), straggler_timeout_s=seconds)


def _check(rank: int, size: int, rank_here: int, size_here: int) -> None:
    if (rank, size) != (rank_here, size_here):
        raise ConfigError(
            f"the job's rank {rank} of {size} is rank {rank_here} of {size_here} in torch: both must be the "
            "same; let init_process_group take them from the environment"
        )


def _key(store: dist.Store, rank: int) -> str:
    """Return a text that the ranks have in common. Raises ConfigError on another machine than rank 0."""
    if rank == 0:
        store.set("meeting", f"{secrets.token_hex(16)} {_machine()}")
    key: str = store.get("meeting").decode()
    if not key.endswith(f" {_machine()}"):
        raise ConfigError(
            f"rank {rank} runs on another machine than rank 0: all must be on one, or each must find its "
            "configuration in INA_JOB (docs/torch.md)"
        )
    return key


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()} {boot}"
