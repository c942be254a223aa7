"""BF Runtime for the embedded switch: the interface by which published controllers fill Tofino's tables.

======================  =============================================================
`service`               gRPC: takes requests apart, maps errors
`values`                tables as JSON describes them; keys and data of entries, from and to messages
`rows`                  what every kind of table does with entries
`matching`              the program's match-action tables, by way of P4Runtime's entities
`cells`                 the program's registers and counters
`replication`           multicast groups, nodes and exclusions; mirror sessions
`ports`                 the switch's ports, and their statistics
======================  =============================================================

`docs/tofino.md` says what is served. Requests need no role: whoever reaches the port controls the switch.
"""

from softswitch.bfrt.service import BfrtService

__all__ = ["BfrtService"]
