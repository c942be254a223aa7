"""Watches the nodes of Ray, and reports the living ones: a process that keeps Ray out of the daemon.

Each line is a JSON object with the names and addresses of all nodes that are ``alive`` and the ``protocol``,
or with ``failed``.
Only imported with Ray installed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from hostlib.launch.launcher import LaunchError
from hostlib.meet import PROTOCOL
from ina.launch import ray_agents

LOOK_S = 1.0


def main() -> int:
    """Write changes until standard input ends, with the process that started this one."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    try:
        ray_agents.connect()
    except LaunchError as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return 1
    last: list[str] = []
    while True:
        found = sorted(ray_agents.nodes())
        if found != last:
            print(json.dumps({"alive": found, "protocol": PROTOCOL}), flush=True)
            last = found
        time.sleep(LOOK_S)


def _end_with_starter() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
