"""Running one program on both back ends at once and comparing everything that can be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.engine.build import FLAGS, build_c
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.emit_c import emit_c
from softswitch.engine.interpreter import interpreter
from softswitch.engine.pipeline import Pipeline
from tests.softswitch.differential.traffic import Bench, Sent, snapshot


@dataclass(slots=True)
class Pair:
    """The interpreter and the compiled pipeline of one program, fed alike."""

    program: ir.Program
    seed: int = 0
    groups: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    sessions: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    flags: tuple[str, ...] = FLAGS
    pipelines: tuple[Pipeline, Pipeline] = field(init=False)
    benches: list[Bench] = field(init=False)

    def __post_init__(self) -> None:
        library = build_c(emit_c(self.program), flags=self.flags)
        self.pipelines = (
            interpreter(self.program, seed=self.seed),
            CompiledPipeline(self.program, library, seed=self.seed),
        )
        self.benches = [Bench(pipeline, self.groups, self.sessions) for pipeline in self.pipelines]

    def send(self, frame: bytes, port: int, now_us: int = 1000) -> list[Sent]:
        """Send a frame through both. Raises AssertionError if outputs or verdicts differ."""
        oracle, compiled = self.benches
        expected, got = oracle.send(frame, port, now_us), compiled.send(frame, port, now_us)
        where = f"port {port}, frame {frame.hex()}"
        assert got == expected, f"{where}: compiled sent {got}, the interpreter {expected}"
        assert compiled.verdicts == oracle.verdicts, f"{where}: verdicts differ"
        return expected

    def compare_state(self) -> None:
        """Raise AssertionError if registers, counters or entries differ."""
        expected, got = (snapshot(pipeline) for pipeline in self.pipelines)
        for name, value in expected.items():
            assert got[name] == value, f"{name}: compiled {_first(got[name], value)}"


def _first(got: object, expected: object) -> str:
    if isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            if a != b:
                return f"[{i}] is {a}, the interpreter has {b}"
    return f"{got}, the interpreter {expected}"
