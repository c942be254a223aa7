"""``ina cluster``: jobs on a cluster's network over time, under schedulers and allocation policies."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("cluster", "Simulate jobs that contend for a cluster's servers, links and slots.")


@app.callback()
def _group() -> None:
    """Simulate jobs that contend for a cluster's servers, links and slots."""  # one command is a group, too


register(
    app,
    "simulate",
    "ina.cli.cluster.simulate:simulate",
    "Run jobs on a cluster whose links and switch memory they contend for, and compare what becomes of them.",
)
