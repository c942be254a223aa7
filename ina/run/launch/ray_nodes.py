"""A process that watches the nodes of Ray for the daemon, so that the daemon need not import Ray.

After each look at the nodes it prints a JSON object on one line: ``alive`` has the names and addresses of all
nodes that live and answer, ``began_s`` the time at which the look began, on this machine's monotonic clock,
and ``protocol`` the version of this format. If it cannot connect to Ray, it prints ``failed`` with the error,
and ends.
This module needs Ray.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from hostlib.launch.launcher import LaunchError
from hostlib.version import PROTOCOL
from ina.run.launch import ray_agents

LOOK_S = 1.0


def main() -> int:
    """Print the nodes that answer every `LOOK_S`, until standard input ends with the parent process."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    try:
        ray_agents.connect()
    except LaunchError as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return 1
    while True:
        began_s = time.monotonic()
        alive = sorted(ray_agents.nodes())
        print(json.dumps({"alive": alive, "began_s": began_s, "protocol": PROTOCOL}), flush=True)
        time.sleep(LOOK_S)


def _end_with_starter() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
