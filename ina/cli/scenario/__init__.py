"""``ina scenario``: jobs, faults and checks as data, on any runner."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("scenario", "Scenarios: jobs, faults and checks as data, on any runner; see docs/testbeds.md.")


def _add(name: str, line: str) -> None:
    register(app, name, f"ina.cli.scenario.{name}:{name}_", line)


_add("list", "List the scenarios that come along, with the files to begin one's own from.")
_add("run", "Run scenarios one after the other, and check what came of each; status 1 if a check fails.")
