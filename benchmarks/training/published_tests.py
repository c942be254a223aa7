"""Run published tests, and print their outcomes.

``torch`` runs PyTorch's distributed tests, of the installed package, with gloo and with ina; ``horovod FILE``
runs Horovod's ``test_torch.py``. Exits with 1 if a test fails that does not fail with gloo.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from benchmarks.fill import console
from benchmarks.training.published_ranks import KINDS, Outcome

GLOO, INA = "gloo", "ina"
Outcomes = Mapping[str, Sequence[Outcome]]
"""Outcomes of the tests, by backend."""


def main() -> None:
    """Run one set of tests."""
    options = _arguments()
    if options.tests == "torch":
        found = _torch(options)
    else:
        if not options.file.is_file():
            raise SystemExit(f"{options.file} is no file; want test_torch.py of Horovod")
        found = {INA: _run([str(options.file)], options, options.only)}
    console().print(table(found))
    if options.json is not None:
        tests = {name: [asdict(each) for each in outcomes] for name, outcomes in found.items()}
        document = {"tests": options.tests, "ranks": options.ranks, "outcomes": tests}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if failed(found) else 0)


def _torch(options: argparse.Namespace) -> Outcomes:
    """Run PyTorch's tests with gloo, and those that gloo does not skip with "ina"."""
    with_gloo = _run([GLOO], options, options.only)
    names = [each.test for each in with_gloo if each.kind != "skipped"]
    return {GLOO: with_gloo, INA: _run([INA], options, names) if names else []}


def _run(arguments: Sequence[str], options: argparse.Namespace, only: Sequence[str]) -> list[Outcome]:
    """Run the tests in a process of their own, because they set the environment and load modules."""
    with TemporaryDirectory() as folder, (options.log or Path("/dev/null")).open("ab") as output:
        lines = Path(folder) / "lines"
        command = [
            sys.executable,
            "-m",
            "benchmarks.training.published_ranks",
            options.tests,
            *arguments,
            str(options.ranks),
            str(lines),
            *only,
        ]
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SystemExit(
                f"the tests ended with status {done.returncode}: give --log FILE, which says why"
            )
        return [Outcome.from_json(line) for line in lines.read_text(encoding="utf-8").splitlines()]


def table(found: Outcomes) -> Table:
    """Return the numbers of tests by outcome, and below them the tests that failed with anything."""
    shown = Table("", *found)
    for kind in KINDS:
        shown.add_row(kind, *(str(Counter(each.kind for each in found[name])[kind]) for name in found))
    kinds = {name: {each.test: each.kind for each in outcomes} for name, outcomes in found.items()}
    tests = {each.test for outcomes in found.values() for each in outcomes if each.kind == "failed"}
    for test in sorted(tests):
        shown.add_row(test, *(kinds[name].get(test, "") for name in found))
    return shown


def failed(found: Outcomes) -> set[str]:
    """Return the tests that failed with "ina" and did not with gloo."""
    by_name = {name: {each.test for each in all_ if each.kind == "failed"} for name, all_ in found.items()}
    return by_name[INA] - by_name.get(GLOO, set())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.training.published_tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="tests", required=True)
    for kind in ("torch", "horovod"):
        command = kinds.add_parser(kind)
        if kind == "horovod":
            command.add_argument("file", type=Path, metavar="FILE", help="test_torch.py of Horovod")
        command.add_argument(
            "only", nargs="*", help="names of tests, or patterns, such as '*ddp*' (default: all)"
        )
        command.add_argument("--ranks", type=int, default=2, help="number of ranks (default: 2)")
        command.add_argument("--json", type=Path, help="write all outcomes to this file")
        command.add_argument("--log", type=Path, help="append the tests' output to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
