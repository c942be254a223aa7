"""``ina scenario``: jobs, faults and checks as data, on any runner."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("scenario", "Run scenarios of jobs, faults and checks on any testbed; see docs/testbeds.md.")


def _add(name: str, line: str) -> None:
    register(app, name, f"ina.cli.scenario.{name}:{name}_", line)


_add("list", "List the included scenarios, and the files to copy for your own.")
_add(
    "run", "Run scenarios one after the other, and check their outcome; exit with status 1 if a check fails."
)
