"""Configuration of a worker: what a launcher tells it through the environment variable ``INA_JOB``."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeVar

from hostlib import wire
from hostlib.core.watchdog import STRAGGLER_TIMEOUT_S, TIMEOUT_S, Patience
from hostlib.errors import ConfigError

ENVIRONMENT_VARIABLE: Final = "INA_JOB"

DEFAULT_SLOTS: Final = 1024
"""A window of 512 packets: batches large enough that the scheduler spreads workers and switch over the
cores, and all in flight still fits the caches (docs/performance.md)."""

Address = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """How packets reach the switch."""

    kind: Literal["loopback", "udp"]
    """``loopback``: whole Ethernet frames inside UDP datagrams; ``udp``: an ordinary UDP socket."""
    local: str
    """``host:port`` of the worker's socket; port 0 takes a free one (loopback only)."""
    switch: str
    """``host:port`` to send to."""
    src_mac: str = "02:00:00:00:00:01"
    """Addresses in the frames (loopback only)."""
    dst_mac: str = "02:00:00:00:ff:01"
    src_ip: str = "10.0.0.1"
    dst_ip: str = "10.0.255.1"
    udp_port: int = wire.INA_UDP_PORT
    """UDP source port in the frames."""

    def __post_init__(self) -> None:
        if self.kind not in ("loopback", "udp"):
            raise ConfigError(f'transport kind is {self.kind!r}, must be "loopback" or "udp"')
        try:
            parse_address(self.local)
            parse_address(self.switch)
            wire.frame_prefix(self.endpoints, 0)
        except (ValueError, OverflowError) as error:
            raise ConfigError(f"transport: {error}") from error

    @property
    def endpoints(self) -> wire.Endpoints:
        """Addresses in the frames."""
        return wire.Endpoints(self.src_mac, self.dst_mac, self.src_ip, self.dst_ip, self.udp_port)


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One worker's place in one job."""

    job: int
    """Id that the controller gave to the job."""
    rank: int
    size: int
    lanes: int
    """Values per packet that the switch program was built for."""
    transport: TransportConfig
    slots: int = DEFAULT_SLOTS
    """Slots of the job's region in the switch; the window is half of it."""
    timeout_s: float = TIMEOUT_S
    straggler_timeout_s: float = STRAGGLER_TIMEOUT_S
    rendezvous: str | None = None
    """``host:port`` where the workers meet; None: nobody watches them."""

    def __post_init__(self) -> None:
        if not 0 <= self.job <= 0xFFFF:
            raise ConfigError(f"job is {self.job}, must be 0..65535")
        if not 1 <= self.size <= wire.MAX_FAN_IN:
            raise ConfigError(f"size is {self.size}, must be 1..{wire.MAX_FAN_IN} (bits of the bitmap)")
        if not 0 <= self.rank < self.size:
            raise ConfigError(f"rank is {self.rank}, must be 0..{self.size - 1}")
        if self.lanes not in wire.LANE_COUNTS:
            raise ConfigError(f"lanes is {self.lanes}, must be one of {wire.LANE_COUNTS}")
        if self.slots < 2 or self.slots % 2:
            raise ConfigError(f"slots is {self.slots}, must be even and at least 2: the window is half of it")
        if self.rendezvous is not None:
            try:
                parse_address(self.rendezvous)
            except ValueError as error:
                raise ConfigError(f"rendezvous: {error}") from error
        if not 0 < self.timeout_s <= self.straggler_timeout_s:
            raise ConfigError(
                f"timeout_s is {self.timeout_s}, straggler_timeout_s {self.straggler_timeout_s}: "
                "must be positive, and the second not below the first"
            )

    @property
    def patience(self) -> Patience:
        """How long to wait without progress."""
        return Patience(self.timeout_s, self.straggler_timeout_s)

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a configuration. Raises ConfigError with what is wrong."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{ENVIRONMENT_VARIABLE} is not JSON: {error}") from error
        if not isinstance(fields, dict) or not isinstance(fields.get("transport"), dict):
            raise ConfigError(f'{ENVIRONMENT_VARIABLE} must be a JSON object with an object "transport"')
        fields["transport"] = _build(TransportConfig, fields["transport"])
        return _build(cls, fields)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Return the configuration that a launcher left in ``INA_JOB``, None if there is none."""
        text = environment.get(ENVIRONMENT_VARIABLE)
        return None if text is None else cls.from_json(text)


def parse_address(text: str) -> Address:
    """Split ``host:port``; raises ValueError with the text if it is not of that form."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{text!r} is not an address of the form host:port")
    return host, int(port)


def _build(cls: type[T], fields: Mapping[str, Any]) -> T:
    known = {field.name: field.default for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(fields.keys() - known):
        raise ConfigError(f"unknown {', '.join(unknown)}; known are {', '.join(known)}")
    missing = [
        name for name, default in known.items() if default is dataclasses.MISSING and name not in fields
    ]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is missing")
    try:
        return cls(**fields)
    except TypeError as error:
        raise ConfigError(f"a field has the wrong type: {error}") from error
