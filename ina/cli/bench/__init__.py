"""``ina bench``: how fast the switch and a collective are; ``python -m benchmarks.speed`` has all else."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("bench", "Measure the speed of the switch and of allreduce; see docs/performance.md.")


def _add(name: str, line: str) -> None:
    register(app, name, f"ina.cli.bench.{name}:{name}", line)


_add("pipeline", "Measure aggregation by the compiled program: packets in memory, on one core or several.")
_add("switch", "Measure forwarding by tables of every kind, and table writes over P4Runtime.")
_add(
    "allreduce",
    "Measure allreduce, or another collective, through sockets and a switch process on loopback.",
)
