"""Ray on the machines of a test's cluster."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.system.clusters import Cluster

RAY = all(importlib.util.find_spec(name) for name in ("ray", "pyarrow", "tensorboardX"))
"""Whether Ray is installed with what Ray Train needs."""

PATIENT = {
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_num_prestart_python_workers": "0",
}
"""Ray gives up on a machine that is loaded after half a minute."""


def ray_on(here: Cluster, cpus: Mapping[str, int]) -> str:
    """Start Ray on machines with so many CPUs; return the address of the first one, the head.

    It ends with the cluster. Skips the test if Ray itself does not start, as on a machine that is loaded.
    """
    topology, ray = here.state.topology, str(Path(sys.executable).with_name("ray"))
    head, *_ = cpus
    address = f"{topology.ip(head)}:6379"
    for machine, number in cpus.items():
        node = [ray, "start", "--block", f"--node-ip-address={topology.ip(machine)}"]
        node += [f"--node-name={machine}", f"--num-cpus={number}"]
        node += ["--object-store-memory=80000000", "--disable-usage-stats"]
        first = ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={here.private}/ray"]
        more = first if machine == head else [f"--address={address}"]
        process = here.start(machine, [*node, *more], PATIENT)
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                break
        else:  # its raylet gives its agent some fifteen seconds, whatever one sets
            errors = process.communicate()[1]
            pytest.skip(f"Ray cannot be started on this machine now: {''.join(said)}{errors}"[-2000:])
    return address
