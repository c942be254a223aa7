"""Running ``ina schedule`` in this process: what it printed, its exit code, and what it complained of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from ina.cli.commands import app
from ina.cli.errors import verdict


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    complaint: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def schedule(*arguments: object) -> Ran:
    """Run ``ina schedule ARGUMENTS`` as `ina.cli.main` does."""
    result = CliRunner().invoke(app, ["schedule", *map(str, arguments)])
    if result.exception is None or isinstance(result.exception, SystemExit):
        return Ran(result.exit_code, result.stdout, result.stderr)
    complaint, code = verdict(result.exception)
    return Ran(code, result.stdout, complaint)
