"""Packet scripts: what goes into a switch and what must come out, one command per line.

::

    let NAME = HEX                        later $NAME stands for HEX
    group ID PORT[:RID] ...               a multicast group
    session ID PORT[:RID] ...             a clone session
    add TABLE [prio=N] PATTERN ... => ACTION(ARG, ...)
    modify TABLE [prio=N] PATTERN ... => ACTION(ARG, ...)
    delete TABLE [prio=N] PATTERN ...
    default TABLE => ACTION(ARG, ...)     or: default TABLE
    write REGISTER INDEX VALUE
    packet PORT HEX
    expect PORT HEX                       in order; * is any nibble
    expect nothing
    register NAME INDEX = VALUE           must hold now
    counter NAME INDEX = PACKETS BYTES
    direct TABLE [prio=N] PATTERN ... = PACKETS BYTES

A pattern is ``value``, ``value/prefix``, ``value&&&mask``, ``low..high`` or ``_``. Names of tables and
actions may be cut to their last parts; ``#`` starts a comment. A feature's script is the comment at the end
of its program. ``python -m tests.softswitch.differential.script FEATURE.p4...`` writes the ``expect`` lines
anew as the interpreter has them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from softswitch.compiler import compile_file, ir
from softswitch.engine.interpreter import Interpreter
from softswitch.engine.pipeline import Pipeline
from tests.softswitch.differential.traffic import Bench, Sent

_PACKETS, _END = "\n/* packets\n", "*/\n"


@dataclass(frozen=True, slots=True)
class Line:
    """One command: its words, its number in the file."""

    number: int
    command: str
    rest: str


def read(text: str) -> Iterator[Line]:
    """Yield the commands of a script, ``let`` applied."""
    constants: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.split("#")[0].strip()
        if not stripped:
            continue
        command, _, rest = stripped.partition(" ")
        rest = re.sub(r"\$(\w+)", lambda match: constants[match[1]], rest.strip())
        if command == "let":
            name, _, value = rest.partition("=")
            constants[name.strip()] = value.strip()
        else:
            yield Line(number, command, rest)


@dataclass(slots=True)
class Runner:
    """Runs a script on one pipeline. `sent` has what came out for every ``packet`` line, by line number."""

    pipeline: Pipeline
    bench: Bench = field(init=False)
    sent: dict[int, list[Sent]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bench = Bench(self.pipeline, {}, {})

    def run(self, lines: Iterable[Line], *, check: bool = True) -> None:
        """Run all lines. Raises AssertionError with the line number where an expectation fails."""
        pending: list[Sent] = []
        expected = 0
        last = 0
        for line in lines:
            if check and line.command == "packet":
                assert not pending, f"line {last}: unexpected output {pending}"
            if line.command == "packet":
                port, _, frame = line.rest.partition(" ")
                now_us = 1000 * (len(self.sent) + 1)
                pending = self.bench.send(bytes.fromhex("".join(frame.split())), int(port), now_us)
                self.sent[line.number] = list(pending)
                last, expected = line.number, 0
            elif line.command == "expect":
                expected += 1
                if check:
                    self._expect(line, pending, expected)
            else:
                self._command(line, check)
        if check:
            assert not pending, f"line {last}: unexpected output {pending}"

    def _expect(self, line: Line, pending: list[Sent], count: int) -> None:
        where = f"line {line.number}"
        if line.rest == "nothing":
            assert count == 1, f"{where}: nothing beside something"
            assert not pending, f"{where}: expected nothing, got {pending}"
            return
        assert pending, f"{where}: nothing more was sent"
        port, _, pattern = line.rest.partition(" ")
        sent = pending.pop(0)
        wanted = re.sub(r"\s", "", pattern).lower()
        got = sent.frame.hex()
        fits = len(got) == len(wanted) and all(a in ("*", b) for a, b in zip(wanted, got, strict=True))
        assert sent.port == int(port), f"{where}: expected port {port}, got {sent.port}"
        assert fits, f"{where}: expected {wanted}, got {got}"

    def _command(self, line: Line, check: bool) -> None:
        program = self.pipeline.program
        words = line.rest.split()
        match line.command:
            case "group" | "session":
                copies = [parse_copy(word) for word in words[1:]]
                target = self.bench.groups if line.command == "group" else self.bench.sessions
                target[int(words[0])] = copies
            case "add":
                self.pipeline.insert(*parse_entry(program, line.rest))
            case "modify":
                self.pipeline.modify(*parse_entry(program, line.rest))
            case "delete":
                self.pipeline.delete(*parse_entry(program, line.rest))
            case "default":
                table, _, call = line.rest.partition("=>")
                name = resolve(program.tables, table.strip())
                self.pipeline.set_default(name, parse_call(program, name, call) if call else None)
            case "write":
                name = resolve(program.registers, words[0])
                self.pipeline.write_register(name, int(words[1], 0), int(words[2], 0))
            case "register" | "counter" | "direct":
                if check:
                    self._check(line)
            case _:
                raise ValueError(f"line {line.number}: no such command: {line.command}")

    def _check(self, line: Line) -> None:
        program = self.pipeline.program
        subject, _, value = line.rest.rpartition("=")
        numbers = tuple(int(word, 0) for word in value.split())
        got: tuple[int, ...]
        if line.command == "direct":
            table, entry = parse_entry(program, subject)
            got = self.pipeline.read_direct_counter(table, entry)
        else:
            name, index = subject.split()
            if line.command == "register":
                got = (self.pipeline.read_register(resolve(program.registers, name), int(index, 0)),)
            else:
                got = self.pipeline.read_counter(resolve(program.counters, name), int(index, 0))
        assert got == numbers, f"line {line.number}: expected {numbers}, got {got}"


def resolve(names: Mapping[str, object], name: str) -> str:
    """Return the only full name that is `name` or ends in its parts."""
    if name in names:
        return name
    found = [full for full in names if full.endswith("." + name)]
    assert len(found) == 1, f"{name!r} should name one of {list(names)}"
    return found[0]


def parse_copy(word: str) -> tuple[int, int]:
    """Parse PORT[:RID]."""
    port, _, rid = word.partition(":")
    return int(port), int(rid or 0)


def parse_entry(program: ir.Program, text: str) -> tuple[str, ir.ConstEntry]:
    """Parse ``TABLE [prio=N] PATTERN ... [=> ACTION(ARGS)]``."""
    left, _, call = text.partition("=>")
    table, *words = left.split()
    name = resolve(program.tables, table)
    priority = 0
    if words and words[0].startswith("prio="):
        priority = int(words.pop(0)[5:])
    keys = program.tables[name].keys
    assert len(keys) == len(words), f"table {name} has {len(keys)} keys, not {len(words)}"
    patterns = tuple(parse_pattern(key, word) for key, word in zip(keys, words, strict=True))
    invocation = parse_call(program, name, call) if call else program.tables[name].default
    return name, ir.ConstEntry(patterns, invocation, priority)


def parse_pattern(key: ir.Key, word: str) -> ir.Pattern:
    """Parse one pattern for `key`."""
    if word == "_":
        return ir.Pattern("any")
    if "&&&" in word:
        value, mask = (int(part, 0) for part in word.split("&&&"))
        return ir.Pattern("mask", value & mask, mask)
    if ".." in word:
        low, high = (int(part, 0) for part in word.split(".."))
        return ir.Pattern("range", low, high)
    if "/" in word:
        width = key.expr.type.width
        value, length = (int(part, 0) for part in word.split("/"))
        mask = ((1 << length) - 1) << (width - length)
        return ir.Pattern("mask", value & mask, mask)
    return ir.Pattern("exact", int(word, 0))


def parse_call(program: ir.Program, table: str, text: str) -> ir.Invocation:
    """Parse ``ACTION(ARG, ...)``; the action must be one of the table's."""
    match = re.fullmatch(r"\s*([\w.]+)\((.*)\)\s*", text)
    assert match, f"not an action with arguments: {text!r}"
    action = resolve({ref.action: ref for ref in program.tables[table].actions}, match[1])
    return ir.Invocation(action, tuple(int(arg, 0) for arg in match[2].split(",") if arg.strip()))


def updated(text: str, sent: Mapping[int, list[Sent]]) -> str:
    """Return the script with its ``expect`` lines replaced by what was sent."""
    out: list[str] = []
    for number, raw in enumerate(text.splitlines(), 1):
        if raw.split("#")[0].split()[:1] == ["expect"]:
            continue
        out.append(raw)
        if number in sent:
            out += [f"expect {s.port} {s.frame.hex()}".rstrip() for s in sent[number]] or ["expect nothing"]
    return "\n".join(out) + "\n"


def packets_of(feature: Path) -> str:
    """Return the script of a feature: the comment at the end of its program."""
    return feature.read_text().partition(_PACKETS)[2].removesuffix(_END)


def main(features: list[str]) -> None:
    """Rewrite the expectations of the given features."""
    for path in map(Path, features):
        program, text = path.read_text().partition(_PACKETS)[0], packets_of(path)
        runner = Runner(Interpreter(compile_file(path)))
        runner.run(read(text), check=False)
        path.write_text(program + _PACKETS + updated(text, runner.sent) + _END)


if __name__ == "__main__":
    main(sys.argv[1:])
