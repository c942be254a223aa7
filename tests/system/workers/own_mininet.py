"""A user's own Mininet with two hosts and the embedded switch: says whenever one reaches the other.

Between, Mininet's own command line stops the switch and starts it again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bmv2_topos.testbeds.mininet import EmbeddedSwitch, find

find()

from mininet.cli import CLI  # noqa: E402 - only now it is found
from mininet.net import Mininet  # noqa: E402
from mininet.topo import SingleSwitchTopo  # noqa: E402

SERVE = "import socket; socket.create_server(('', 7000)).accept()[0].sendall(b'reached')"
ASK = "import socket; print(socket.create_connection(('10.0.0.1', 7000)).makefile().read())"
AGAIN = "dpctl dump-flows\nswitch s1 stop\nswitch s1 start\nswitch s1 start\n"
RETRY = 'until python3 -c "$1" 2>/dev/null; do :; done'

net = Mininet(SingleSwitchTopo(2), switch=EmbeddedSwitch, controller=None)
net.start()
try:
    for _ in range(2):
        server = net["h1"].popen(["python3", "-c", SERVE])
        print(net["h2"].popen(["sh", "-c", RETRY, "sh", ASK]).communicate()[0].decode().strip(), flush=True)
        server.wait()
        sys.stdin.readline()
        with tempfile.NamedTemporaryFile("w", suffix=".cli") as commands:
            Path(commands.name).write_text(AGAIN)
            CLI(net, script=commands.name)
finally:
    net.stop()
