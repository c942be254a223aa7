"""BF Runtime for the embedded switch: the interface by which published controllers fill Tofino's tables.

======================  =============================================================
`service`               gRPC: takes requests apart, maps errors
`values`                tables as JSON describes them; their entries, from and to messages
`matching`              the program's match-action tables, by way of P4Runtime's entities
`cells`                 the program's registers and counters
`switch_tables`         the switch's ports, multicast groups, nodes and exclusions; mirror sessions
======================  =============================================================

`docs/tofino.md` says what is served. Requests need no role: whoever reaches the port controls the switch.
"""

from softswitch.bfrt.service import BfrtService

__all__ = ["BfrtService"]
