"""How jobs share a link of 100 Mb/s with TCP and with each other: shares, use of the link, costs.

Real processes in network namespaces: two switches and the link between them, workers on both sides, and
iperf3's flows of TCP in the direction of the jobs' contributions.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Final

import numpy as np

from benchmarks.pages import real
from bmv2_topos.harness import Experiment, ResultRow, Run, column, columns, grouped, markdown, number, spread
from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.names import namespace
from controller.vocabulary import Job, Link, Topology
from controller.vocabulary.catalog import dumbbell
from hostlib.core.congestion import TCP_BYTES
from ina.run.launch.spec import LaunchSpec
from ina.run.live import WorkerOptions, run_on
from ina.run.switches.testbeds import opened

RATE_BPS: Final = 1e8
WINDOW: Final = 256
SIZE: Final = 4 << 20
"""Bytes of the arrays that jobs sum, one after the other."""
RULES: Final = ("fixed", "aimd", "tcp")
SEEDS: Final = (1, 2, 3, 4, 5)
"""Runs of one job beside TCP; all else is run once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLink:
    """Jobs and flows of TCP on a link, once all have begun."""

    labels: ResultRow
    rule: str
    flows: int = 0
    control: str = "cubic"
    """TCP's congestion control."""
    fan_ins: tuple[int, ...] = (2,)
    """Workers of each job, half of them on each side."""
    delays_s: tuple[float, ...] = (0.0,)
    """Delays of the links of each job's hosts; further jobs have the last one's."""
    trunk_s: float = 0.0025
    lanes: int = 256
    warm_s: int = 8
    seconds: int = 15

    real: ClassVar[bool] = True
    """Rows differ between runs."""

    @property
    def missing(self) -> str:
        """The missing requirement for a run here; "": none."""
        return real.missing() or ("" if shutil.which("iperf3") else "TCP's flows need iperf3")

    @property
    def elements(self) -> int:
        """Elements that all workers send on a link of their own."""
        return int(self.seconds * RATE_BPS / 32) * sum(self.fan_ins)

    def topology(self) -> Topology:
        """Return the testbed."""
        trunk = Link("a", "b", rate_bps=RATE_BPS, delay_s=self.trunk_s, queue_packets=256)
        fast = Link("a", "b", rate_bps=0, delay_s=0)
        whole = dumbbell(sum(self.fan_ins) // 2, 1, link=fast, trunk=trunk)
        delays = [
            self.delays_s[min(number, len(self.delays_s) - 1)]
            for number, workers in enumerate(self.fan_ins)
            for _ in range(workers // 2)
        ]
        slow = {f"h{1 + at}": delay for at, delay in enumerate([*delays, *delays])}
        links = (
            replace(link, delay_s=slow.get(link.a, slow.get(link.b, link.delay_s))) for link in whole.links
        )
        return replace(whole, links=tuple(links))

    def run(self) -> ResultRow:
        """Run it. Raises NetnsError, WorkerFailed."""
        load, topology, name = os.getloadavg()[0], self.topology(), f"coexistence-{os.getpid()}"
        going = threading.Semaphore(0)

        def on_output(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
            if is_error:
                real.to_stderr(spec, rank, data, is_error)
            else:
                going.release()

        with (
            netns.temporary(name, topology, netns.Program(lanes=self.lanes)) as state,
            tempfile.TemporaryDirectory() as folder,
            opened(state) as fabric,
        ):
            command = (sys.executable, "-m", "benchmarks.pages.coexistence", folder)
            jobs = [
                Job(
                    name=f"{at}",
                    workers=workers,
                    command=(*command, f"{at}"),
                    slots=2 * WINDOW,
                    congestion=self.rule,
                )
                for at, workers in enumerate(self.fan_ins)
            ]
            found: dict[str, Any] = {}
            arguments = (name, topology, Path(folder), going, found)
            traffic = threading.Thread(target=self._beside, args=arguments)
            traffic.start()
            try:
                ends = run_on(
                    fabric, [LaunchSpec(job=job) for job in jobs], WorkerOptions(on_output=on_output)
                )
            finally:
                going.release(len(jobs))
                traffic.join()
            for end in ends:
                end.check()
            rates = [self._rate_bps(Path(folder) / f"{at}.json", found) for at in range(len(jobs))]
        reports = [end.result.reports[0] for end in ends if end.result is not None]
        sent = sum(report["packets_sent"] for report in reports)
        flows = found.pop("flows")
        everyone = [*rates, *flows]
        return {
            **{f"job_{at}_bps": rate for at, rate in enumerate(rates)},
            **{f"flow_{at}_bps": rate for at, rate in enumerate(flows)},
            "jain": sum(everyone) ** 2 / len(everyone) / sum(rate**2 for rate in everyone),
            "use": sum(everyone) / RATE_BPS,
            "resent_share": sum(report["packets_resent"] for report in reports) / sent,
            "retransmits_per_s": found["retransmits"] / self.seconds,
            "tcp_rtt_s": found["rtt_s"],
            "load": load,
        }

    def _rate_bps(self, path: Path, found: dict[str, Any]) -> float:
        """Return the rate of a job's packets on the link, frame headers included, in bits per second."""
        ends = json.loads(path.read_text())
        done = np.interp([found["from"], found["to"]], ends, range(len(ends)))
        packets = SIZE / (4 * self.lanes)
        wire = packets * (4 * self.lanes + real.FRAME_HEADERS_BYTES) + WINDOW * real.FRAME_HEADERS_BYTES
        return float((done[1] - done[0]) * wire * 8 / (found["to"] - found["from"]))

    def _beside(
        self, name: str, topology: Topology, folder: Path, going: threading.Semaphore, found: dict[str, Any]
    ) -> None:
        for _ in self.fan_ins:
            going.acquire()
        at = ["ip", "netns", "exec"]
        options = ["-O", f"{self.warm_s}", "-t", f"{self.seconds}", "-P", f"{self.flows}"]
        try:
            begun = time.monotonic()
            if self.flows:
                listens = [*at, namespace(name, "x1"), "iperf3", "-s", "-1", "--forceflush"]
                sends = [*at, namespace(name, "x2"), "iperf3", "-c", topology.ip("x1"), "-J", *options]
                with subprocess.Popen(listens, stdout=subprocess.PIPE, text=True) as server:
                    assert server.stdout is not None
                    while "listening" not in server.stdout.readline():
                        pass
                    begun = time.monotonic()
                    done = subprocess.run([*sends, "-C", self.control], stdout=subprocess.PIPE, check=True)
                    server.stdout.read()
                streams = json.loads(done.stdout)["end"]["streams"]
            else:
                time.sleep(self.warm_s + self.seconds)
                streams = []
            found |= {
                "from": begun + self.warm_s,
                "to": begun + self.warm_s + self.seconds,
                "flows": [TCP_BYTES / 1448 * each["receiver"]["bits_per_second"] for each in streams],
                "retransmits": sum(each["sender"]["retransmits"] for each in streams),
                "rtt_s": fmean(each["sender"]["mean_rtt"] / 1e6 for each in streams) if streams else 0.0,
            }
        finally:
            (folder / "stop").touch()


def scenarios(quick: bool) -> Iterator[Run]:
    """Return the runs: a job beside flows, in short packets, beside BBR; jobs alike and different."""
    short = {"warm_s": 1, "seconds": 2} if quick else {}
    mixes: list[tuple[str, Sequence[str], dict[str, Any]]] = [
        *((f"1 job, {flows} TCP", RULES, {"flows": flows}) for flows in (1, 2, 4)),
        ("1 job, 1 TCP, no delay", RULES, {"flows": 1, "trunk_s": 0.0}),
        ("1 job of 64 lanes, 1 TCP", RULES, {"flows": 1, "lanes": 64}),
        ("1 job", RULES, {}),
        ("1 job, 1 TCP (BBR)", RULES[::2], {"flows": 1, "control": "bbr"}),
        ("2 jobs of 2 and 6", RULES[::2], {"fan_ins": (2, 6)}),
        ("2 jobs, one 5 ms farther", RULES[::2], {"fan_ins": (2, 2), "delays_s": (0.0, 0.0025)}),
        ("4 jobs", RULES[::2], {"fan_ins": (2, 2, 2, 2)}),
    ]
    for at, (mix, rules, given) in enumerate(mixes[:1] if quick else mixes):
        for rule, seed in product(rules, SEEDS if at < 3 and not quick else SEEDS[:1]):
            yield SharedLink(labels={"mix": mix, "rule": rule, "seed": seed}, rule=rule, **{**given, **short})


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a line for each mix and rule: means over the seeds, and the range."""
    lines = []
    for (mix, rule), group in grouped(rows, "mix", "rule").items():
        shares = [
            spread([number(row, name) / 1e6 for row in group for name in row if name.startswith(kind)], ".1f")
            for kind in ("job_", "flow_")
            if any(name.startswith(kind) for name in group[0])
        ]
        cells = [spread(column(group, name), form) for name, form in COLUMNS]
        lines.append([str(mix), f"`{rule}`", *[*shares, ""][:2], *cells])
    heads = ["link", "rule", "jobs, Mb/s", "TCP, Mb/s", "Jain's index", "use", "job sent again"]
    return markdown([*heads, "TCP sent again, 1/s", "TCP's round trip, s", "load"], lines)


COLUMNS: Final = (
    *(("jain", ".3f"), ("use", ".2f"), ("resent_share", ".1%"), ("retransmits_per_s", ".0f")),
    *(("tcp_rtt_s", ".3f"), ("load", ".0f")),
)


EXPERIMENT = Experiment(
    name="coexistence",
    title="Coexistence: jobs, TCP and each other on one link",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)


def main() -> None:
    """Sum arrays until a file `stop` appears, as a rank; the first writes when each sum ended."""
    import hostlib as ina

    folder = Path(sys.argv[1])
    ina.init()
    array, ends = np.ones(SIZE // 4, np.float32), list[float]()
    while not ends or array[0] == ina.size():
        array.fill(1.0)
        array[0] = not (ina.rank() == 0 and (folder / "stop").exists())
        ina.allreduce(array, out=array)
        ends.append(time.monotonic())
        if ina.rank() == 0 and len(ends) == 1:
            print("going", flush=True)
    if ina.rank() == 0:
        (folder / f"{sys.argv[2]}.json").write_text(json.dumps(ends))
    ina.shutdown()


if __name__ == "__main__":
    main()
