"""What the switches of test_aggregation.py are connected to."""

from __future__ import annotations

from tests.bmv2.packets import Station

PORTS = range(12)

WORKERS = tuple(
    Station(port=i, mac=0x02_00_00_00_00_10 + i, ip=0x0A_00_00_10 + i, udp_port=40000 + i) for i in range(8)
)
PARENT = Station(port=8, mac=0x02_00_00_00_00_A8, ip=0x0A_00_00_A8)
SERVER = Station(port=9, mac=0x02_00_00_00_00_A9, ip=0x0A_00_00_A9, udp_port=45000)
OTHER_SERVER = Station(port=10, mac=0x02_00_00_00_00_AA, ip=0x0A_00_00_AA, udp_port=45001)
BELOW = Station(port=11, mac=0x02_00_00_00_00_AB, ip=0x0A_00_00_AB)
"""A switch below, that passes on what its workers send."""
