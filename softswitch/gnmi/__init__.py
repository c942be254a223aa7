"""gNMI for the embedded switch: its ports, as OpenConfig's interfaces, and whether it changed, to be read.

======================  =============================================================
`interfaces`            the ports of a switch, and what tells changes, as a tree of leaves; which of
                        them a path selects
`service`               gRPC: Capabilities, Get and Subscribe (ONCE, POLL)
======================  =============================================================
"""

from softswitch.gnmi.service import handlers

__all__ = ["handlers"]
