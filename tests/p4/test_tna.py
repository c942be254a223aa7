"""The programs for Tofino, as far as text tells: one read-modify-write per register, the same wire."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TNA = ROOT / "p4src" / "tna"
PROGRAMS = ("exclusive", "shared")
ACTIONS_OF_AN_ALU = 4
WIDTHS = {"agreement_t": 64}
COMMENT = re.compile(r"//.*")
CONTROL = r"\bcontrol (\w+)\([^)]*\)\s*"
ACTION = r"\baction (\w+)\([^)]*\)\s*"
TABLE = r"\btable (\w+)\s*"


def text_of(path: Path) -> str:
    """Return a file with its own includes written out, once each, and without comments."""
    return COMMENT.sub("", "\n".join(_lines(path, set())))


def _lines(path: Path, seen: set[Path]) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        quoted = re.fullmatch(r'#include "(.+)"', line)
        if not quoted:
            yield line
            continue
        other = (path.parent / quoted[1]).resolve()
        if other not in seen:
            seen.add(other)
            yield from _lines(other, seen)


def blocks(text: str, head: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each match of `head`, which ends before a brace, with what is between the braces."""
    for match in re.finditer(head + r"[^{};]*\{", text):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield match, text[match.end() : end - 1]


def tables_with(control: str, action: str) -> set[str]:
    """Return the tables of a control that have an action."""
    lists = (
        (match[1], re.findall(r"actions = \{([^}]*)\}", table)) for match, table in blocks(control, TABLE)
    )
    return {name for name, actions in lists if re.search(rf"\b{action};", actions[0])}


def faults(control: str) -> list[str]:
    """Return what keeps a packet from meeting each register of a control at most once, in one ALU."""
    registers = re.findall(r"\bRegister<[^;=]*?>\([^)]*\) (\w+);", control)
    register_of = {
        name: register for register, name in re.findall(r"RegisterAction<.+?>\((\w+)\) (\w+) =", control)
    }
    runs = {match[1]: re.findall(r"(\w+)\.execute\(", body) for match, body in blocks(control, ACTION)}
    found = [f"action {name} executes {ran}" for name, ran in runs.items() if len(ran) > 1]
    found += [f"register {of} is not here" for of in register_of.values() if of not in registers]
    for register in registers:
        own = [name for name, of in register_of.items() if of == register]
        callers = [name for name, ran in runs.items() if set(ran) & set(own)]
        tables = set().union(*(tables_with(control, name) for name in callers))
        if not 1 <= len(own) <= ACTIONS_OF_AN_ALU:
            found.append(f"register {register} has {len(own)} actions")
        if len(tables) != 1:
            found.append(f"register {register} is met from tables {sorted(tables)}")
        found += [
            f"table {table} is not applied once"
            for table in tables
            if len(re.findall(rf"\b{table}\.apply\(\)", control)) != 1
        ]
        if re.search(rf"\b{register}\.(read|write)\(", control):
            found.append(f"register {register} is read or written besides")
    executed = sum(len(re.findall(rf"\b{name}\.execute\(", control)) for name in register_of)
    if executed != sum(map(len, runs.values())):
        found.append("a register is met outside of an action")
    return found


def controls(program: str) -> dict[str, str]:
    """Return the controls of a program that have registers: name to body."""
    text = text_of(TNA / f"{program}.p4")
    found = {match[1]: body for match, body in blocks(text, CONTROL)}
    return {name: body for name, body in found.items() if "Register<" in body}


def width(kind: str) -> int:
    """Return the bits of a register's type."""
    return WIDTHS[kind] if kind in WIDTHS else int(kind.removeprefix("bit<").removesuffix(">"))


def bits_of_slot(program: str, lanes: int) -> tuple[int, int]:
    """Return how many registers a program has, and how many bits a slot takes in them."""
    found = controls(program)
    times = {name: len(re.findall(rf"\b{name}\(\) \w+;", text_of(TNA / f"{program}.p4"))) for name in found}
    times["Lane"] = lanes
    registers = [
        (width(kind), times[name])
        for name, body in found.items()
        for kind in re.findall(r"\bRegister<(bit<\d+>|\w+), index_t>", body)
    ]
    return sum(count for _, count in registers), sum(bits * count for bits, count in registers)


@pytest.mark.parametrize(
    ("program", "expected"), [("exclusive", {"Lane", "Slot"}), ("shared", {"Lane", "Slot", "Word"})]
)
def test_every_register_is_met_once(program: str, expected: set[str]) -> None:
    found = controls(program)
    assert set(found) == expected
    assert {name: faults(body) for name, body in found.items()} == {name: [] for name in expected}
    text = text_of(TNA / f"{program}.p4")
    for name in expected:
        instances = re.findall(rf"\b{name}\(\) (\w+)(?:##i)?;", text)
        assert instances
        for instance in instances:
            assert len(re.findall(rf"\b{instance}(?:##i)?\.apply\(", text)) == 1, instance


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("psn.apply();", "psn.apply(); psn.apply();", "table psn is not applied once"),
        ("{ beginning", "{ joining.execute(meta.index); beginning", "action begin executes"),
        ("{ join_too; ", "{ join_too; join; ", "slot_bitmap is met from tables ['bitmap', 'seen']"),
        ("psn.apply();", "psn.apply(); looking.execute(0);", "a register is met outside of an action"),
        ("psn.apply();", "psn.apply(); slot_psn.read(0);", "slot_psn is read or written besides"),
    ],
)
def test_meeting_a_register_twice_is_found(old: str, new: str, fault: str) -> None:
    body = controls("exclusive")["Slot"]
    assert old in body
    assert any(fault in found for found in faults(body.replace(old, new, 1)))


def test_the_headers_are_those_of_the_other_programs() -> None:
    include = '#include "../../include/headers.p4"'
    assert include in (TNA / "include" / "config.p4").read_text(encoding="utf-8")
    for path in TNA.rglob("*.p4"):
        assert not re.search(r"^header ", path.read_text(encoding="utf-8"), re.MULTILINE), path


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_page_counts_what_is_there(program: str) -> None:
    registers, bits = bits_of_slot(program, 32)
    wide, wide_bits = bits_of_slot(program, 64)
    row = f"| `{program}.p4` | {registers - 32} | {registers} | {bits // 8} B | {wide} | {wide_bits // 8} B |"
    assert row in (ROOT / "docs" / "reference" / "tofino.md").read_text(encoding="utf-8")
