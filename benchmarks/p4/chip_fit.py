"""Would the aggregation programs fit a chip? The resources of `p4src/tna` by p4c's back end for Tofino.

`python -m benchmarks.p4.chip_fit -I P4INCLUDE --output docs/results` compiles both programs for both chips,
and reads the compiler's own report of resources. Needs `p4c-barefoot` on PATH, which p4c
builds with `-DENABLE_TOFINO=ON`; P4INCLUDE are the folders of `core.p4` and of `tna.p4`. No chip is needed.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from rich.progress import track

from benchmarks.fill import check, option, parse_options, publish
from bmv2_topos.harness import markdown

TNA: Final = Path(__file__).parents[2] / "p4src" / "tna"
PROGRAMS: Final = ("exclusive", "shared")
ARCHITECTURES: Final = {"tofino": "tna", "tofino2": "t2na"}
SLOTS: Final = 16384
UNITS: Final = {
    "SRAM blocks": ("rams", "srams", ("nRows", "nColumns")),
    "map RAMs": ("map_rams", "maprams", ("nRows", "nUnits")),
    "TCAM blocks": ("tcams", "tcams", ("nRows", "nColumns")),
    "stateful ALUs": ("meter_alus", "meters", ("nAlus",)),
    "logical tables": ("logical_tables", "ids", ("size",)),
}
"""Resources of a stage: name in the report, list of those in use, factors of their total number."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program, compiled for a chip (a key of ARCHITECTURES)."""

    program: str
    chip: str
    lanes: int
    slots: int = SLOTS


@dataclass(frozen=True, slots=True)
class Fit:
    """A compiler's report of a case: its use of each resource, and the resource's size."""

    case: Case
    stages: tuple[int, int]
    units: dict[str, tuple[int, int]]
    phv_bits: tuple[int, int]
    """Bits of packet headers and metadata, in containers that stages can compute with."""
    compile_s: float

    @property
    def fits(self) -> bool:
        """Whether there are enough stages; the compiler checks all other resources."""
        used, available = self.stages
        return used <= available


class NotCompiled(Exception):
    """The compiler refused a program."""


def main() -> None:
    """Compile, print a table, and write a page on request."""
    options = parse_options(
        __doc__,
        option("--compiler", default="p4c-barefoot", help="its name or path"),
        option("-I", dest="includes", type=Path, action="append", default=[], metavar="DIR"),
        option("--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS),
        option("--chips", nargs="+", choices=tuple(ARCHITECTURES), default=tuple(ARCHITECTURES)),
        option("--lanes", nargs="+", type=int, choices=(32, 64), default=(32, 64)),
        option("--slots", nargs="+", type=int, default=(SLOTS,), help="powers of two"),
        option(
            "--output", type=Path, metavar="DIR", help="write chip-fit.md and .json; rows of other cases stay"
        ),
    )
    compiler = shutil.which(options.compiler)
    if compiler is None:
        raise SystemExit(
            f"benchmarks.p4.chip_fit: {options.compiler} is not on PATH: build p4c with -DENABLE_TOFINO=ON"
        )
    if options.output:
        check(options.output / "chip-fit.md")
    cases = [Case(*each) for each in product(options.programs, options.chips, options.lanes, options.slots)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ended = pool.map(lambda case: compile_for(case, compiler, options.includes), cases)
        try:
            rows = list(track(ended, "compiling", total=len(cases)))
        except NotCompiled as error:
            raise SystemExit(f"benchmarks.p4.chip_fit: {error}") from None
    print(table(rows))
    if options.output:
        known = {row.case: row for row in published(options.output / "chip-fit.json")}
        both = list((known | {row.case: row for row in rows}).values())
        both.sort(key=lambda row: astuple(row.case))
        publish(options.output, "chip-fit", table(both), [asdict(row) | {"fits": row.fits} for row in both])


def compile_for(case: Case, compiler: str, includes: Sequence[Path]) -> Fit:
    """Compile a program, and read the compiler's report. Raises NotCompiled."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        done = subprocess.run(
            [compiler, *arguments(case, includes), "-o", folder, TNA / f"{case.program}.p4"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NotCompiled(f"{case}:\n{done.stdout}")
        logs = Path(folder) / "pipe" / "logs"
        resources, phv = (json.loads((logs / f"{name}.json").read_text()) for name in ("resources", "phv"))
        return account(case, resources["resources"], phv["containers"], time.monotonic() - began)


def arguments(case: Case, includes: Sequence[Path]) -> list[str]:
    """Return the compiler's options for a case."""
    version = list(ARCHITECTURES).index(case.chip) + 1
    return [
        *("--target", case.chip, "--arch", ARCHITECTURES[case.chip], "-g"),
        *(f"-D{name}={value}" for name, value in (("LANES", case.lanes), ("SLOTS", case.slots))),
        f"-D__TARGET_TOFINO__={version}",
        *(f"-I{folder}" for folder in includes),
    ]


def account(case: Case, resources: dict[str, Any], containers: list[dict[str, Any]], took_s: float) -> Fit:
    """Return the figures in a compiler's `resources.json` and `phv.json`."""
    stages = resources["mau"]["mau_stages"]
    available = resources["mau"]["nStages"]
    normal = resources["phv_containers"]["normal"]
    return Fit(
        case,
        (len(stages), available),
        {
            name: (
                sum(len(stage[key][used]) for stage in stages),
                available * math.prod(stages[0][key][size] for size in sizes),
            )
            for name, (key, used, sizes) in UNITS.items()
        },
        (
            sum(each["bit_width"] for each in containers if each["container_type"] == "normal"),
            sum(group["units"] * group["width"] for group in normal),
        ),
        took_s,
    )


def published(path: Path) -> list[Fit]:
    """Return the rows that a file has; none if there is no file."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [
        Fit(
            Case(**row["case"]),
            tuple(row["stages"]),
            {name: tuple(numbers) for name, numbers in row["units"].items()},
            tuple(row["phv_bits"]),
            row["compile_s"],
        )
        for row in rows
    ]


def table(rows: Sequence[Fit]) -> str:
    """Return the rows as Markdown: the used and the total number of each resource."""
    heads = ["program", "chip", "lanes", "slots", "fits", "stages", *UNITS, "PHV bits", "compiled in"]
    return markdown(heads, [_line(row) for row in rows])


def _line(row: Fit) -> list[str]:
    case = row.case
    return [
        *(f"`{case.program}`", case.chip, str(case.lanes), str(case.slots)),
        "yes" if row.fits else "**no**",
        *(f"{used} of {available}" for used, available in (row.stages, *row.units.values(), row.phv_bits)),
        f"{row.compile_s:.0f} s",
    ]


if __name__ == "__main__":
    main()
