"""The scripts in STF for our own programs: ``python -m tests.p4.make_scripts`` writes them anew.

Each is a folder ``aggregation_…`` with a program that sets the sizes, and a script for any target that runs
STF. What leaves is worked out by the interpreter, whose answers `test_exclusive_slots`, `test_shared_answers`
and the others check against the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from softswitch.compiler import ir
from tests.p4.bed import QUERY, RESEND, Bed, Job, Packet, frame_of, program, worker
from tests.softswitch.differential.script import parse_entry

FOLDER = Path(__file__).parent
PROGRAM = """\
// {name}.p4 with sizes that any target has room for.
#define LANES 32
#define SLOTS 64
#include "../../../p4src/{name}.p4"
"""
JOB = Job(size=2)
TENS = tuple(range(10, 330, 10))

Step = tuple[str, int, bytes]
"""What it is, the port, the frame."""


def sends(what: str, child: int, **changes: object) -> Step:
    """Return a contribution of a child of the job."""
    values = TENS if child else Packet().values
    packet = Packet(bitmap=1 << child, fan_in=2, values=values)
    frame = Packet(**{**vars(packet), **changes}).frame(child + 1)  # type: ignore[arg-type]
    return what, child + 1, frame


def steps() -> Iterator[Step]:
    """Yield what is sent: the same to both programs."""
    yield sends("the first contribution of two: nothing leaves", 0)
    yield sends("the second: the sum goes to both", 1)
    yield sends("the first again, because its result was lost", 0, flags=RESEND)
    yield sends("another PSN, with what a tensor of another type would have as its tag", 1, psn=101, tag=8)
    yield sends("its other half: a sum that says that they disagree", 0, psn=101)
    yield sends("half of a third", 0, psn=102)
    yield sends("who is missing there?", 0, psn=102, flags=RESEND | QUERY)
    yield sends("a job that is not here", 0, job=77)
    yield sends("an earlier admission of the job", 0, epoch=9)
    yield sends("somebody else's bit", 0, bitmap=2)
    yield sends("a version that is not ours", 0, version=3)
    yield "a frame that ends inside the header", 1, sends("", 0)[2][:60]
    other = frame_of(b"not for us", source=worker(1), destination=(*worker(2)[:2], 53), ttl=9)
    yield "other traffic, for an address that no table knows", 1, other


def script(name: str) -> str:
    """Return the script for one of our programs."""
    bed = Bed(name, (JOB,), backend="interpreter")
    lines = [
        f"# {name}.p4: a job of two workers at ports 1 and 2, its group 1, and the way up at port 9.",
        "",
    ]
    lines += [_added(program(name), text) for text in JOB.entries()]
    lines += [f"mc_mgrp_create {JOB.job}"]
    for handle, port in enumerate(JOB.ports):
        lines += [f"mc_node_create {port} {port}", f"mc_node_associate {JOB.job} {handle}"]
    for what, port, frame in steps():
        bed.now_us += 1000
        left = bed.bench.send(frame, port, bed.now_us)
        lines += ["", f"# {what}", f"packet {port} {frame.hex()}"]
        lines += [f"expect {sent.port} {sent.frame.hex()}$" for sent in left]
    return "\n".join(lines) + "\n"


def _added(source: ir.Program, text: str) -> str:
    table, entry = parse_entry(source, text)
    keys = " ".join(
        f"{key.name}:{pattern.value}"
        for key, pattern in zip(source.tables[table].keys, entry.patterns, strict=True)
    )
    action = source.actions[entry.invocation.action]
    args = ", ".join(
        f"{param.name}:{value}" for param, value in zip(action.params, entry.invocation.args, strict=True)
    )
    return f"add {table} {keys} {action.name}({args})"


def files() -> Iterator[tuple[Path, str]]:
    """Yield all files and what is in them."""
    for name in ("exclusive", "shared", "atp"):
        folder = FOLDER / f"aggregation_{name}"
        yield folder / "program.p4", PROGRAM.format(name=name)
        yield folder / "packets.stf", script(name)


if __name__ == "__main__":
    for path, text in files():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
