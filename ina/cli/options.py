"""Options that several commands share."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ina.cli.command import FAILED, Declared, failing_at, parse_size, refuse

if TYPE_CHECKING:  # most commands connect to nothing, and gRPC takes its time to load
    import softswitch
    from controller import SwitchSession, Tls

FAULTS = "Link faults"
TLS = "TLS"
SOCKET_PATH_BYTES = 107
"""Maximum number of bytes in the path of a Unix socket."""

Lanes = Annotated[
    int, Declared(help="Put this many values into each packet: 32, 64 or 256.", show_default=True)
]
OpenLanes = Annotated[
    int | None,
    Declared(
        help="Put this many values into each packet: 32, 64 or 256.",
        show_default="256, or as in the running program",
    ),
]
FLOWS = "Send this many flows of ordinary packets beside the jobs, between random hosts."
PROGRAM = (
    "Load this switch program: exclusive (each job has its own slots), shared (all jobs share one array of "
    "slots), atp (ATP as published, for comparison), or a program of your own, a file that ends in .p4."
)
Program = Annotated[str, Declared(help=PROGRAM)]
OpenProgram = Annotated[
    str | None, Declared(help=PROGRAM, show_default="exclusive, or what --switch ADDRESS runs")
]
WORKERS = ("-np", "-n", "--workers")
"""The names of the option for the number of workers."""
Congestion = Annotated[
    str | None,
    Declared(
        metavar="NAME",
        rich_help_panel="Switch memory and windows",
        help="Control congestion by this rule: fixed, aimd, a2tp or tcp; or one of your own: path.py:NAME, "
        "path.so:FUNCTION, or a name that an installed package offers (docs/guides/own-rules.md). Default: "
        "fixed.",
    ),
]
Loss = Annotated[
    float,
    Declared(rich_help_panel=FAULTS, help="Lose each frame with this probability, per port and direction."),
]
Rate = Annotated[
    float,
    Declared(
        "--rate",
        metavar="BPS",
        rich_help_panel=FAULTS,
        help="Limit every port to this rate, in bits per second; 0: unlimited.",
    ),
]
Defines = Annotated[
    list[str] | None,
    Declared(
        "-D",
        "--define",
        metavar="NAME[=VALUE]",
        help="Define this macro for the preprocessor; VALUE defaults to 1. Repeatable.",
    ),
]


UndefinedValues = Literal["zero", "random", "bmv2"]
"""Values of --undefined: the choices of `softswitch.Choice`, which is slow to import."""

Undefined = Annotated[
    UndefinedValues | None,
    Declared(
        help="Give values that P4 leaves undefined (fields of invalid headers, unset variables, "
        "registers read past their end) this content: zero, random, or the same as BMv2. "
        "Default: whatever is fastest.",
        show_default=False,
    ),
]
Seed = Annotated[int, Declared(rich_help_panel=FAULTS, help="Seed the random numbers of the switch.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions:
    """Options for faults of the links of switches that a command starts."""

    loss: Loss = 0.0
    duplicate: Annotated[
        float, Declared(rich_help_panel=FAULTS, help="Duplicate each frame with this probability.")
    ] = 0.0
    reorder: Annotated[
        float,
        Declared(
            rich_help_panel=FAULTS, help="Reorder each frame with this probability: later frames overtake it."
        ),
    ] = 0.0
    corrupt: Annotated[
        float,
        Declared(
            rich_help_panel=FAULTS,
            help="Corrupt each frame with this probability; the receiver's frame check drops it.",
        ),
    ] = 0.0
    delay: Annotated[
        float,
        Declared(metavar="SECONDS", rich_help_panel=FAULTS, help="Delay every frame by this many seconds."),
    ] = 0.0
    rate_bps: Rate = 0.0
    queue: Annotated[
        int,
        Declared(
            metavar="PACKETS",
            rich_help_panel=FAULTS,
            help="Queue at most this many packets per port, with --rate; drop further ones.",
        ),
    ] = 64
    link_loss: Annotated[
        float | None,
        Declared(
            rich_help_panel=FAULTS,
            help="Lose each frame between switches with this probability. Default: as --loss.",
        ),
    ] = None
    seed: Seed = 0

    def impairments(self, loss: float | None = None) -> str:
        """Return the faults of a port in the notation of ``ina switch --impair``; "" for none.

        `loss` is the port's probability of loss; None: the value of --loss. Raises Failure.
        """
        from controller.vocabulary.topology import MAX_RATE_BPS, MAX_S

        chances = {
            "loss": self.loss if loss is None else loss,
            "duplicate": self.duplicate,
            "reorder": self.reorder,
            "corrupt": self.corrupt,
        }
        for name, value in chances.items():
            check_chance(f"--{name}", value)
        for name, value, least, most, unit in (
            ("delay", self.delay, 0, MAX_S, "seconds"),
            ("rate", self.rate_bps, 0, MAX_RATE_BPS, "bits per second"),
            ("queue", self.queue, 1, 1e12, "packets"),
        ):
            refuse(not least <= value < math.inf, f"--{name} {value:g}: want {least} or more")
            refuse(value > most, f"--{name} {value:g}: want {least} to {most:g} {unit}")
        numbers = {**chances, "delay": self.delay, "rate": self.rate_bps}
        given = [f"{name}={value!r}" for name, value in numbers.items() if value]
        return ",".join([*given, f"queue={self.queue}"] if self.rate_bps else given)

    def link_impairments(self) -> str:
        """Return the faults of a port between switches; see `impairments`. Raises Failure."""
        if self.link_loss is not None:
            check_chance("--link-loss", self.link_loss)
        return self.impairments(self.link_loss)


CAPTURES = "Captures"
MOST_SNAP = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class PcapOptions:
    """Options for captures: where they are written, and their limits."""

    pcap: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="DIR",
            rich_help_panel=CAPTURES,
            help="Capture the packets of each port in DIR/SWITCH-portN.pcapng; see docs/guides/captures.md.",
        ),
    ] = None
    pcap_limit: Annotated[
        str,
        Declared(metavar="SIZE", rich_help_panel=CAPTURES, help="Stop each capture at this size."),
    ] = "1GB"
    pcap_snap: Annotated[
        int,
        Declared(
            min=1,
            max=MOST_SNAP,
            metavar="BYTES",
            rich_help_panel=CAPTURES,
            help="Keep this many bytes of each frame.",
        ),
    ] = MOST_SNAP

    def limit(self) -> int:
        """Return the maximum size of a capture, in bytes. Raises Failure."""
        return parse_size("--pcap-limit:", self.pcap_limit)


def make_folder(pcap: Path | None) -> None:
    """Make the folder that ``--pcap`` names, if the option is given. Raises Failure."""
    if pcap is not None:
        with failing_at(f"--pcap {pcap}", OSError, exit_code=FAILED):
            pcap.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingOptions:
    """Options for when a scheduling policy decides, and how often a failed job is retried."""

    interval: Annotated[
        float,
        Declared(
            metavar="SECONDS",
            min=0,
            help="Ask the policy for decisions only at multiples of this many seconds; 0: whenever jobs "
            "change.",
        ),
    ] = 0.0
    retries: Annotated[
        int,
        Declared(
            metavar="TIMES",
            min=0,
            help="Retry a failed job up to this many times, from its last checkpoint.",
        ),
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS options of the connection to a running switch."""

    tls_ca: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            rich_help_panel=TLS,
            help="With --switch ADDRESS: connect over TLS, and accept only certificates signed by "
            "this CA (PEM).",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        Declared(
            metavar="FILE", rich_help_panel=TLS, help="With --tls-ca: present this client certificate (PEM)."
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            rich_help_panel=TLS,
            help="With --tls-cert: use the certificate's private key in this file (PEM).",
        ),
    ] = None

    def tls(self, address: str) -> Tls | None:
        """Return the TLS settings of a connection to `address`; None without TLS. Raises Failure."""
        refuse(
            (self.tls_cert is None) != (self.tls_key is None),
            "--tls-cert and --tls-key need each other: give both or neither",
        )
        if self.tls_ca is not None:
            refuse(
                address.startswith("unix:"),
                f"--tls-ca: TLS does not work over a Unix socket; leave it out for {address}",
            )
            from controller import Tls

            return Tls(self.tls_ca, self.tls_cert, self.tls_key)
        refuse(
            self.tls_cert is not None, "--tls-cert needs --tls-ca FILE, the CA of the switch's certificate"
        )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSwitch(TlsOptions):
    """Options of commands for one running switch: its address, its device id, and TLS."""

    switch: Annotated[
        str,
        Declared(metavar="ADDRESS", help="Connect to this running switch: grpc://HOST:PORT or unix:PATH."),
    ]
    device_id: Annotated[
        int, Declared(min=0, max=2**64 - 1, help="Use this P4Runtime device id of the switch.")
    ] = 0

    def connect(self) -> SwitchSession:
        """Connect to the switch. Raises Failure for invalid options; ControllerError."""
        from controller import connect

        address = parse_switch("--switch", self.switch)
        return connect(address, device_id=self.device_id, tls=self.tls(address))


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Split the ``host:port`` that was given to `option`. Raises Failure."""
    from hostlib.launch.launcher import parse_address as parse  # most commands have no address to read

    with failing_at(option, ValueError):
        return parse(text)


def parse_switch(option: str, text: str, *, other: str = "") -> str:
    """Return HOST:PORT or unix:PATH from the ``grpc://host:port`` or ``unix:path`` given to `option`.

    The prefix ``grpc://`` is optional, as in cluster files. Raises Failure for other texts. The
    message of Failure lists the valid values. The list begins with `other`, a text about further values that
    `option` accepts.
    """
    if text.startswith("unix:") and text != "unix:":
        refuse(
            len(os.fsencode(text.removeprefix("unix:"))) > SOCKET_PATH_BYTES,
            f"{option} {text!r}: want a socket path of at most {SOCKET_PATH_BYTES} bytes",
        )
        return text
    address = text.removeprefix("grpc://")
    refuse(
        text == "unix:" or ":" not in text or "://" in address,
        f"{option} {text!r}: want {other}grpc://host:port or unix:PATH",
    )
    parse_address(option, address)
    return address


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers in a list such as ``1-8,12``, which was given to `option`. Raises Failure."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        numbers = all(end.isascii() and end.isdecimal() and len(end) < 7 for end in ends)
        refuse(
            not numbers or int(ends[0]) > int(ends[1]),
            f"{option} {text!r}: want numbers and ranges, such as 1-8,12, up to 999999",
        )
        found += range(int(ends[0]), int(ends[1]) + 1)
    return tuple(found)


def parse_defines(texts: list[str]) -> dict[str, str]:
    """Return macros by name from texts ``NAME`` and ``NAME=VALUE``. Raises Failure."""
    defines = {}
    for text in texts:
        name, equals, value = text.partition("=")
        refuse(not name.isidentifier(), f"-D {text!r}: want NAME or NAME=VALUE")
        defines[name] = value if equals else "1"
    return defines


def check_chance(option: str, value: float) -> None:
    """Raise Failure unless the value is a probability."""
    refuse(not 0 <= value <= 1, f"{option} {value:g}: want a probability, 0 to 1")


def choice(undefined: UndefinedValues | None) -> softswitch.Choice | None:
    """Return the compiler's choice for values that P4 leaves undefined; None: whatever is fastest."""
    import softswitch

    return None if undefined is None else softswitch.Choice(undefined)
