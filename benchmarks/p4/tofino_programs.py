"""Published programs for Tofino through our compiler and both back ends: which run, load or are refused.

``python -m benchmarks.p4.tofino_programs NAME=FOLDER… [--page docs/tofino.md]`` takes folders of programs,
such as p4c's ``backends/p4tools/modules/testgen/targets/tofino/test/p4-programs`` and open-p4studio's
``pkgsrc/p4-examples/p4_16_programs``; every file that instantiates ``main`` is a program. It

refused   does not compile: the first error says why;
loads     compiles for both back ends, or, with ``--packets 0``, was not run;
runs      gives the same packets and verdicts in both, for random packets and without entries in its tables.

Nothing is written to these folders.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.fill import asked, check, console, fill, option
from softswitch.compiler import CompileError, compile_file, ir
from softswitch.engine.build import build_c
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.emit_c import emit_c
from softswitch.engine.interpreter import interpreter
from softswitch.engine.pipeline import Copy, Pipeline, PipelineError

_FLAGS = ("-std=gnu11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden")
_MAIN = re.compile(r"\bmain\s*;")
_TOFINO_2 = re.compile("tofino2|t2na")
_PORTS = (0, 1, 5, 68)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a program, and why if it was refused."""

    source: str
    program: str
    outcome: str
    why: str = ""


def main() -> None:
    """Run the command."""
    args = asked(
        __doc__,
        option("folders", nargs="+", metavar="NAME=FOLDER"),
        option("--packets", type=int, default=200, help="random packets for each program"),
        option("--page", type=Path, help="write the tables between this page's marks"),
        prog="benchmarks.p4.tofino_programs",
    )
    if args.page:
        check(args.page)
    found = list(_all(args.folders, args.packets))
    tables = f"{_counts(found)}\n\n{_refusals(found)}"
    console().print(tables, markup=False, highlight=False)
    if args.page:
        fill(args.page, tables)


def _all(folders: Sequence[str], packets: int) -> Iterator[Found]:
    for item in folders:
        name, _, folder = item.partition("=")
        root = Path(folder)
        programs = programs_in(root)
        with ProcessPoolExecutor(max_workers=2) as pool:
            yield from pool.map(partial(_one, name, root, packets), programs)


def programs_in(folder: Path) -> list[Path]:
    """Return the files that instantiate `main`, below a folder. Raises SystemExit if there are none."""
    found = [
        path
        for path in sorted(folder.rglob("*.p4"))
        if _MAIN.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    if not found:
        raise SystemExit(f"{folder}: no program, a file that instantiates main, is there")
    return found


def _one(name: str, root: Path, packets: int, path: Path) -> Found:
    program = path.stem
    target = "2" if _TOFINO_2.search(str(path.relative_to(root))) else "1"
    try:
        compiled = compile_file(path, defines={"__TARGET_TOFINO__": target}, include_dirs=[root])
        text = emit_c(compiled)
    except CompileError as error:
        return Found(name, program, "refused", error.message)
    if not packets:
        return Found(name, program, "loads")
    try:
        different = _difference(compiled, text, packets)
    except PipelineError as error:
        return Found(name, program, "loads", str(error))
    return Found(name, program, "loads" if different else "runs", different)


def _difference(program: ir.Program, text: str, packets: int) -> str:
    """Return how the back ends differ for random packets, "" if they do not."""
    both = interpreter(program), CompiledPipeline(program, build_c(text, flags=_FLAGS))
    draw = Random(1)
    for _ in range(packets):
        frame, port = _frame(draw), draw.choice(_PORTS)
        left = [_through(pipeline, frame, port) for pipeline in both]
        if left[0] != left[1]:
            return f"the back ends differ for {frame.hex()} from port {port}"
    return ""


def _through(pipeline: Pipeline, frame: bytes, port: int) -> list[object]:
    packet, verdict = pipeline.ingress(frame, port, 1)
    seen: list[object] = [verdict]
    if verdict.clone:
        mirror = pipeline.clone_packet(packet, frame)
        seen.append(pipeline.egress(mirror, Copy(egress_port=2, instance_type=1, now_us=2)))
    if not verdict.dropped:
        seen.append(pipeline.egress(packet, Copy(egress_port=verdict.egress_spec, now_us=2)))
    return seen


def _frame(draw: Random) -> bytes:
    """Return bytes that begin like a frame of IPv4 or IPv6, and TCP or UDP, more often than not."""
    addresses = draw.randbytes(12)
    kind = draw.choice(
        (b"\x08\x00\x45\x00", b"\x08\x00\x46\x00", b"\x86\xdd\x60\x00", b"\x81\x00", draw.randbytes(2))
    )
    rest = draw.randbytes(draw.choice((0, 3, 20, 46, 64, 200)))
    middle = draw.randbytes(7) + draw.choice((b"\x06", b"\x11"))
    return addresses + kind + middle + rest


def _counts(found: Sequence[Found]) -> str:
    lines = ["| programs of | run | load | refused | of |", "| --- | ---: | ---: | ---: | ---: |"]
    for source in dict.fromkeys(each.source for each in found):
        count = Counter(each.outcome for each in found if each.source == source)
        total = sum(count.values())
        lines.append(f"| {source} | {count['runs']} | {count['loads']} | {count['refused']} | {total} |")
    return "\n".join(lines)


def _refusals(found: Sequence[Found]) -> str:
    lines = ["| program | | why |", "| --- | --- | --- |"]
    rows = [each for each in found if each.outcome != "runs"]
    lines += [f"| {each.source}: {each.program} | {each.outcome} | {each.why} |" for each in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
