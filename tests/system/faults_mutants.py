"""Switch programs with one defect each: a text of the source replaced by another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from bmv2_topos.soak.programs import LANES, slots_of
from controller import Mode
from controller.switches.programs import source_of
from softswitch import compile_once, preprocess_file
from softswitch.compiler import ir

FIRST_TESTBED = 1000


@cache
def _source(program: Mode) -> tuple[str, str]:
    """Return the path and the text of a program, preprocessed."""
    path, defines = source_of(program, LANES)
    return str(path), preprocess_file(path, defines={**defines, "SLOTS": str(slots_of(program))})


@dataclass(frozen=True)
class ProgramMutant:
    """A regular expression that a program's source matches exactly once, and what to put there."""

    pattern: str
    replacement: str
    program: Mode = "shared"
    found_on: int = FIRST_TESTBED
    """The first bed on which it is found, to begin with: from there on any may find it."""
    hides: str = ""
    """The outcome that no packet meets any more, if sums stay right and all collectives end."""

    def compile(self) -> ir.Program:
        path, text = _source(self.program)
        changed, times = re.subn(self.pattern, self.replacement, text)
        assert times == 1, f"{path} matches {times} times: {self.pattern}"
        return compile_once(changed, name=path)


PROGRAMS = {
    "a contributor's bit is not looked at": ProgramMutant(
        r"seen = \(bitmap & hdr\.ina\.bitmap\) != 0 \? 1w1 : 1w0;", "seen = 0;"
    ),
    "a flush leaves its slot as it is": ProgramMutant(
        r"(outcome_t\.FLUSHED,\s+LANES_ADD,\s+)SLOT_RELEASE", r"\1SLOT_KEEP"
    ),
    "a slot's generation is not compared": ProgramMutant(
        r"mine = slot\.generation == meta\.generation", "mine = slot.job == hdr.ina.job", found_on=1008
    ),
    "a slot's job is not compared": ProgramMutant(
        r"mine = slot\.generation == meta\.generation", "mine = true"
    ),
    "a slot's PSN is not compared": ProgramMutant(r"mine && age == 0 && slot\.bitmap", "mine && slot.bitmap"),
    "a first contribution is added to what was there": ProgramMutant(
        r"(outcome_t\.AGGREGATED,\s+)LANES_OVERWRITE(,\s+SLOT_CLAIM)", r"\1LANES_ADD\2"
    ),
    "an unfinished sum may be overwritten": ProgramMutant(
        r"relation = free \? RELATION_FREE : RELATION_OTHER;", "relation = RELATION_FREE;", hides="collided"
    ),
    "an old slot is not reclaimed": ProgramMutant(
        r"aged = now - slot\.touched > meta\.max_age_us \? 1w1 : 1w0;", "aged = 0;", hides="reclaimed"
    ),
    "nobody is preempted": ProgramMutant(
        r"outranks = meta\.preempt == 1 && [^;]*;", "outranks = 0;", hides="preempted"
    ),
    "an evicted sum leaves with the bitmap of the packet": ProgramMutant(
        r"hdr\.ina\.bitmap = slot\.bitmap;", ""
    ),
    "an evicted sum leaves in the name of another job": ProgramMutant(
        r"hdr\.ina\.job = slot\.job;", "", found_on=1018
    ),
    "an evicted sum leaves in the name of another node": ProgramMutant(
        r"as_part = meta\.evicted == 1;", "as_part = false;"
    ),
    "the sum of a subtree is kept as the result": ProgramMutant(
        r"meta\.root == 0 \? SLOT_FULL", "false ? SLOT_FULL"
    ),
    "raw values are added in a slot": ProgramMutant(r"\n\s+\(1, [^;]*outcome_t\.BYPASSED[^;]*;", ""),
    "a sum that was lost on its way up is not sent again": ProgramMutant(
        r"outcome_t\.RELAYED,\s+LANES_FETCH,\s+SLOT_KEEP,\s+TO_UPLINK, KIND_GRADIENT",
        "outcome_t.DUPLICATE, LANES_NONE, SLOT_KEEP, TO_NOBODY, 0",
    ),
    "a result is not kept where it passes": ProgramMutant(
        r"outcome_t\.STORED,\s+LANES_OVERWRITE,\s+SLOT_STORE",
        "outcome_t.PASSED_DOWN, LANES_NONE, SLOT_KEEP",
        hides="stored",
    ),
    "a reminder is answered without the sum": ProgramMutant(
        r"(outcome_t\.PULLED,\s+)LANES_FETCH(,\s+SLOT_RELEASE)", r"\1LANES_NONE\2"
    ),
    "the largest exponent is not kept": ProgramMutant(r"hdr\.ina\.exponent = seen == 0 && [^;]*;", ""),
    "an overflow is not marked": ProgramMutant(r"\(meta\.overflow == 1 \? FLAG_OVERFLOW : 0\)", "0"),
    "packets of an earlier epoch are let in": ProgramMutant(
        r"hdr\.ina\.epoch != meta\.generation\[7:0\]", "false"
    ),
    "a contribution may name two ranks": ProgramMutant(
        r"\|\| \(hdr\.ina\.bitmap & \(hdr\.ina\.bitmap - 1\)\) != 0", "", found_on=1004
    ),
    "packets of no member are let in": ProgramMutant(
        r"(!member\.apply\(\)\.hit)\)", r"\1 && hdr.ina.kind != KIND_GRADIENT)"
    ),
    "a damaged header is let in": ProgramMutant(
        r"standard_metadata\.checksum_error == 1", "false", "exclusive"
    ),
    "exclusive: a contributor's bit is not looked at": ProgramMutant(
        r"seen = \(bitmap & hdr\.ina\.bitmap\) != 0 \? 1w1 : 1w0;", "seen = 0;", "exclusive"
    ),
    "exclusive: a late copy takes the slot of a later packet": ProgramMutant(
        r"outcome_t\.STALE,\s+LANES_NONE,\s+TO_NOBODY, 0\);(\s+\}\s+\}\s+table result)",
        r"outcome_t.AGGREGATED, LANES_OVERWRITE, TO_NOBODY, 0);\1",
        "exclusive",
        found_on=1115,
    ),
    "exclusive: a result that was lost is not sent again": ProgramMutant(
        r"outcome_t\.REPLAYED,\s+LANES_FETCH,\s+TO_SENDER, KIND_RESULT",
        "outcome_t.DUPLICATE, LANES_NONE, TO_NOBODY, 0",
        "exclusive",
    ),
    "exclusive: a slot's generation is not compared": ProgramMutant(
        r"generation != meta\.generation \? RELATION_NEWER : relation", "relation", "exclusive"
    ),
}
