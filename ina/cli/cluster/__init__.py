"""``ina cluster``: jobs on a cluster's network over time, under schedulers and allocation policies."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("cluster", "Simulate jobs that share a cluster's servers, links and switch memory.")


@app.callback()
def _group() -> None:
    """Simulate jobs that share a cluster's servers, links and switch memory."""  # a group of one command


register(
    app,
    "simulate",
    "ina.cli.cluster.simulate:simulate",
    "Simulate jobs that share a cluster's links and switch memory, and compare policies.",
)
