"""``ina dissector``: INA packets in Wireshark."""

from __future__ import annotations

from hostlib.wire.lua_dissector import dissector as source

EPILOG = """Examples:

  ina dissector > ~/.local/lib/wireshark/plugins/ina.lua

  ina dissector > ina.lua && tshark -X lua_script:ina.lua -r s1-port1.pcapng -Y ina.flags.collision
"""


def dissector() -> None:
    """Print a Wireshark dissector for INA packets.

    Prints a Lua script, which tshark reads, too. It is generated from the definition of the packets.
    """
    print(source(), end="")
