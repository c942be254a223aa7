"""One trial: a random program, random entries and random packets, on both back ends."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from softswitch.compiler import CompileError, compile_source, ir
from softswitch.engine.build import FLAGS
from tests.softswitch.differential.compare import Pair
from tests.softswitch.differential.random_lanes import LaneGenerator
from tests.softswitch.differential.random_program import Generator
from tests.softswitch.differential.stimuli import disturb, frame, install

PACKETS = 40
# Compiling takes most of the time of a trial.
QUICK = tuple("-O1" if flag == "-O3" else flag for flag in FLAGS)
GROUPS = {1: [(1, 1), (2, 2), (1, 3)]}
SESSIONS = {1: [(7, 0)], 2: [(8, 1), (9, 2)]}


def source(seed: int) -> str:
    """Return the program of a seed; every third one is of lanes."""
    random = Random(seed)
    return LaneGenerator(random).program() if seed % 3 == 0 else Generator(random).program()


def run(seed: int, flags: tuple[str, ...] = QUICK) -> None:
    """Run the trial of a seed. Raises AssertionError where the back ends disagree."""
    run_program(compile_source(source(seed), name=f"seed{seed}.p4"), seed, flags)


def run_program(program: ir.Program, seed: int, flags: tuple[str, ...] = QUICK) -> None:
    """Feed a program entries and packets that depend on `seed` alone."""
    random = Random(seed)
    pair = Pair(program, seed, GROUPS, SESSIONS, flags)
    install(random, pair.pipelines, 6)
    for i in range(PACKETS):
        pair.send(frame(random, random.choice((100, 600))), random.choice((0, 1, 2, 510, 511)), 1000 * i)
        if i == PACKETS // 2:
            disturb(random, pair.pipelines)
    pair.compare_state()


def reduced(text: str, seed: int) -> str:
    """Return a shorter program on which the back ends still disagree, by leaving out blocks of lines."""
    lines = text.splitlines()
    size = len(lines) // 2
    while size:
        for shorter in _without(lines, size):
            if _disagree("\n".join(shorter), seed):
                lines = shorter
                break
        else:
            size //= 2
    return "\n".join(lines) + "\n"


def _without(lines: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(lines) - size + 1):
        chunk = "".join(lines[start : start + size])
        if chunk.count("{") == chunk.count("}"):
            yield lines[:start] + lines[start + size :]


def _disagree(text: str, seed: int) -> bool:
    try:
        run_program(compile_source(text, name="reduced.p4"), seed)
    except CompileError:
        return False
    except AssertionError:
        return True
    return False
