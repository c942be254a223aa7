"""A fallback server beside a worker, on clusters of their own: links that lose packets, `ina doctor`."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from controller.vocabulary.catalog import named
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import PATIENCE_S, cluster, until

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]

STEPS = """
import numpy as np, hostlib as ina
ina.init()
for step in range(200):
    total = ina.allreduce(np.full(2000, step + ina.rank(), np.int32))
    assert (total == ina.size() * step + sum(range(ina.size()))).all()
print("all right", flush=True)
ina.shutdown()
"""


@pytest.mark.parametrize("options", [(), ("--slots", "16")])
def test_sums_are_exact_where_every_link_loses_packets(tmp_path: Path, options: tuple[str, ...]) -> None:
    racks = named("two-racks:2")
    lossy = tuple(replace(each, loss=0.01) for each in racks.links)
    with cluster(tmp_path, shape=replace(racks, links=lossy)) as here, here.serving_on("h2"):
        here.serve_fallback("h2")
        run = here.run_patiently("h1:2,h2:2,h3:2,h4:2", ["python", "-c", STEPS], *options)
        output, errors = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, errors
        assert output.count("all right") == 8
        assert re.search(r"fallback: reminders +│ +[1-9]", output), output  # packets were lost
        until(lambda: not here.jobs())


def test_doctor_sums_on_the_servers_machine_together_with_others(tmp_path: Path) -> None:
    with cluster(tmp_path) as here, here.serving_on("h2"):
        here.serve_fallback("h2")
        command = [sys.executable, "-m", "ina", "doctor", "--json", "--hosts", "h1,h2,h3"]
        command += ["--cluster", str(here.file), "--launch-with", here.template]
        process = here.start("h1", command)
        output, errors = process.communicate(timeout=PATIENCE_S)
        report = json.loads(output)
        assert (process.returncode, report["findings"]) == (0, []), (output, errors)
        assert {*report["goodputs_bps"]} == {"h1", "h3", "all", "all, in the fallback server"}
