"""Options of commands that capture at the ports of embedded switches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ina.cli.declared import Declared
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import parse_size

CAPTURES = "Captures"
MOST_SNAP = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class PcapOptions:
    """Where captures are written, and their limits."""

    pcap: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="DIR",
            rich_help_panel=CAPTURES,
            help="Capture the packets at each port into DIR/SWITCH-portN.pcapng; see docs/tracing.md.",
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
        """Return the limit in bytes. Raises Failure."""
        try:
            return parse_size(self.pcap_limit)
        except ValueError as error:
            raise Failure(f"--pcap-limit: {error}", exit_code=USAGE) from error
