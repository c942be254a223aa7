"""Settings from the environment, for programs started by a launcher other than `ina run`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self, cast

from hostlib.addresses import Address, parse_address
from hostlib.collectives import NonFinite
from hostlib.collectives.schedule import FUSION_BYTES, SLICE_BYTES, Limits
from hostlib.errors import ConfigError
from hostlib.wire.encodings import NUMBERS, Numbers

EMBEDDED: Final = "embedded"


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of the environment variables that configure this library, with their defaults."""

    switch: str = EMBEDDED
    """``INA_SWITCH``: ``grpc://host:port`` or ``unix:path`` of a running switch; "embedded": start a
    switch."""
    options: tuple[str, ...] = ()
    """``INA_OPTIONS``: further options of ``ina admit``, split as in a shell."""
    stall_s: float = 10.0
    """``INA_STALL_S``: seconds after which a waiting rank compares its calls with the other ranks' calls."""
    nonfinite: NonFinite = "propagate"
    """``INA_NONFINITE``: effect of NaN and infinity in a framework's tensors, "propagate" or "raise"."""
    float64: Literal["gloo", "switch"] = "gloo"
    """``INA_FLOAT64``: path of a framework's float64 tensors: "gloo", which sums them exactly, or "switch",
    which sums them as float32."""
    limits: Limits = field(default_factory=Limits)
    """``INA_FUSION_BYTES`` and ``INA_SLICE_BYTES``: sizes of fused and sliced collectives; the same on all
    ranks."""

    cluster: str = ""
    """``INA_CLUSTER``: cluster file with the machines and the switches between them; read on the first rank's
    machine."""
    given: bool = False
    """True if ``INA_GIVEN`` is set: a controller has admitted the job already (``ina admit --given``)."""
    controller: str = ""
    """``INA_CONTROLLER``: URL of a controller that admits the job; used where neither a switch nor a cluster
    file is given."""
    hierarchical: bool | None = None
    """``INA_HIERARCHICAL``: 1: first sum each machine's ranks on the machine; 0: never do so; None: do so if
    there are several machines, one of them with several ranks."""
    token: str = field(default="", repr=False)
    """``INA_TOKEN``: secret that ranks on several machines share."""
    meeting_s: float = 300.0
    """``INA_MEETING_S``: longest wait at ``INA_MEETING`` for other ranks, seconds."""
    meeting: Address | None = None
    """``INA_MEETING``: ``host:port`` of the first rank's machine, where ranks that mpirun or srun started
    meet. None: ranks of srun meet at a port of its first node; ranks of mpirun cannot meet if they are on
    several machines."""
    numbers: Numbers | None = None
    """``INA_NUMBERS``: encoding of a framework's floats, "exponent", "block16", "block8" or "block4"; None:
    the job's configuration decides."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the environment variables. Raises ConfigError with the reason."""
        return cls(
            switch=environment.get("INA_SWITCH") or EMBEDDED,
            options=_words(environment.get("INA_OPTIONS", "")),
            cluster=environment.get("INA_CLUSTER", ""),
            given="INA_GIVEN" in environment,
            controller=_controller(environment),
            hierarchical=_switch(environment, "INA_HIERARCHICAL"),
            token=environment.get("INA_TOKEN", ""),
            meeting=_address(environment, "INA_MEETING"),
            meeting_s=_seconds(environment, "INA_MEETING_S", "300"),
            stall_s=_seconds(environment, "INA_STALL_S", "10"),
            numbers=cast(Numbers | None, _one_of(environment, "INA_NUMBERS", ("", *NUMBERS)) or None),
            nonfinite=cast(NonFinite, _one_of(environment, "INA_NONFINITE", ("propagate", "raise"))),
            float64=cast(Literal["gloo", "switch"], _one_of(environment, "INA_FLOAT64", ("gloo", "switch"))),
            limits=Limits(
                fusion_bytes=_size(environment, "INA_FUSION_BYTES", FUSION_BYTES),
                slice_bytes=_size(environment, "INA_SLICE_BYTES", SLICE_BYTES),
            ),
        )


def _controller(environment: Mapping[str, str]) -> str:
    """Return the controller's URL; "" if a switch or a cluster file is given instead."""
    target = environment.get("INA_SWITCH") or environment.get("INA_CLUSTER")
    return "" if target else environment.get("INA_CONTROLLER", "")


def _switch(environment: Mapping[str, str], name: str) -> bool | None:
    text = environment.get(name, "")
    if text not in ("", "0", "1"):
        raise ConfigError(f"{name} is {text!r}, must be 0 or 1")
    return text == "1" if text else None


def _address(environment: Mapping[str, str], name: str) -> Address | None:
    try:
        return parse_address(text) if (text := environment.get(name)) else None
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"INA_OPTIONS is {text!r}: {error}") from error


def _seconds(environment: Mapping[str, str], name: str, default: str) -> float:
    text = environment.get(name) or default
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds < 1e6:
        raise ConfigError(f"{name} is {text!r}, must be a number of seconds from 0.1 on")
    return seconds


def _size(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(f"{name} is {text!r}, must be a number of bytes")
    return int(text)


def _one_of(environment: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    text = environment.get(name) or known[0]
    if text not in known:
        raise ConfigError(f"{name} is {text!r}, must be one of {', '.join(filter(None, known))}")
    return text
