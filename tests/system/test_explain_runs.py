"""What made a real run slow, from its captures and its log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.system.command import good, here, report

STEPS = {
    "iterations": 2,
    "tensors": [3000],
    "compute_s": 0.002,
    "straggler": {"rank": 1, "compute_s": 1.0},
}


def test_captures_and_log_of_a_run_name_its_straggler(tmp_path: Path) -> None:
    captures, log = tmp_path / "captures", tmp_path / "run.log"
    worker = [sys.executable, "-P", "-m", "hostlib.demos.steps", json.dumps(STEPS)]
    shape = ["single-switch:2", "--runner", "loopback", "--rate", 0, "--lanes", 32, "--slots", 64]
    good("topo", "run", *shape, "--pcap", captures, "--log", log, "--", *worker)

    found = report("trace", captures, "--explain", log)
    ((_, job),) = found["jobs"].items()
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    # where ranks agree on a sum they wait for each other; how long is a matter of both
    agreed = {line["number"] for line in logged if "(asynchronous" in line.get("what", "")}
    steps: list[dict[str, Any]] = [each for each in job["explained"] if each["iteration"] in agreed]
    assert len(steps) == 2
    for each in steps:
        assert each["causes"][0] == "straggler"
        assert "rank 1 (s1 port 2)" in each["words"]
    lines = here("trace", captures, "--explain", log).stdout
    assert "straggler" in lines

    (captures / "s1-port2.pcapng").unlink()
    refused = here("trace", captures, "--explain", log)
    assert refused.returncode == 1
    assert "no captures of s1/2, where the workers are" in refused.stderr
