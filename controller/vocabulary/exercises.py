"""Topologies of p4lang/tutorials (``topology.json``), converted to topologies of this project's testbeds.

``hosts`` have ``ip`` (with its prefix), ``mac`` and ``commands``; ``switches`` have ``runtime_json``,
``cli_input``, ``program`` (p4c's output, in a folder beside the program) and ``cpu_port``; ``links`` are
lists of two ends (``h1``, ``s1-p2``) with a delay (in ms, or with its unit) and a rate in Mb/s. Files are
searched for in the current folder, in the topology's folder, and in the folder above that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controller.vocabulary.documents import Document, Where, hint
from controller.vocabulary.errors import BadSpec
from controller.vocabulary.topology import Link, Server, Switch, Topology

_HOST = ("ip", "mac", "commands")
_SWITCH = ("runtime_json", "cli_input", "program", "cpu_port")
_PORT = re.compile(r"(.+)-p(\d+)")
_DELAY = re.compile(r"(\d+(?:\.\d*)?)\s*(us|ms|s|)")
_UNIT_S = {"us": 1e-6, "": 1e-6, "ms": 1e-3, "s": 1.0}
"""Units of delays that are given as text; a number without a unit is in microseconds, as in tc."""


def is_exercise(document: Document) -> bool:
    """Return whether a document is a topology of p4lang/tutorials."""
    data = document.data
    return all(isinstance(data.get(key), dict) for key in ("hosts", "switches")) and "links" in data


def topology_of_exercise(document: Document) -> Topology:
    """Convert a topology of p4lang/tutorials. Raises BadSpec."""
    hosts = tuple(_host(document, name, of) for name, of in document.data["hosts"].items())
    switches = tuple(_switch(document, name, of) for name, of in document.data["switches"].items())
    named = {host.name for host in hosts} | {switch.name for switch in switches}
    links = tuple(
        _link(document, ("links", number), given, named)
        for number, given in enumerate(document.data["links"])
    )
    try:
        return Topology(switches, hosts, links, name=Path(document.path).stem)
    except BadSpec as error:
        raise document.error((), str(error)) from error


def _host(document: Document, name: str, of: Mapping[str, Any]) -> Server:
    where: Where = ("hosts", name)
    _check_keys(document, where, of, _HOST)
    ip, _, prefix = str(of.get("ip", "")).partition("/")
    if not re.fullmatch(r"\d+(\.\d+){3}", ip) or not prefix.isdecimal() or not 1 <= int(prefix) <= 32:
        raise document.error(where, f"ip is {of.get('ip')!r}; want an address with its prefix: 10.0.1.1/24")
    commands = of.get("commands", [])
    if not isinstance(commands, list) or not all(isinstance(each, str) for each in commands):
        raise document.error(where, f"commands is {commands!r}; want a list of texts")
    return Server(name, ip=ip, mac=str(of.get("mac", "")), prefix=int(prefix), commands=tuple(commands))


def _switch(document: Document, name: str, of: Mapping[str, Any]) -> Switch:
    where: Where = ("switches", name)
    _check_keys(document, where, of, _SWITCH)
    files = [str(of[key]) for key in ("cli_input", "runtime_json") if key in of]
    program = str(of.get("program", ""))
    source = str(Path(program).parent.parent / f"{Path(program).stem}.p4") if program else ""
    return Switch(
        name,
        program=_found(document, where, source) if source else "",
        runtime=tuple(_found(document, where, file) for file in files),
        cpu_port=int(of.get("cpu_port", 0)),
    )


def _found(document: Document, where: Where, file: str) -> str:
    beside = Path(document.path).resolve().parent
    tried = [Path(file).resolve(), beside / file, beside.parent / file]
    for path in tried:
        if path.is_file():
            return str(path)
    raise document.error(where, f"there is no file {file}; looked for {', '.join(map(str, tried))}")


def _link(document: Document, where: Where, given: Any, named: set[str]) -> Link:
    if not isinstance(given, list) or not 2 <= len(given) <= 4:
        raise document.error(where, f"{given!r} is no link; want two ends, a delay and a rate in Mb/s")
    (a, a_port), (b, b_port) = (_end(str(end), named) for end in given[:2])
    rate = given[3] if len(given) > 3 and given[3] is not None else 0
    delay_s = _delay_s(given[2]) if len(given) > 2 else 0.0
    if delay_s is None or not isinstance(rate, int | float):
        raise document.error(where, f'{given[2:]!r}: want a delay such as 5 (ms) or "10us", a rate in Mb/s')
    try:
        return Link(a, b, rate_bps=rate * 1e6, delay_s=delay_s, a_port=a_port, b_port=b_port)
    except BadSpec as error:
        raise document.error(where, str(error)) from error


def _end(text: str, named: set[str]) -> tuple[str, int]:
    match = _PORT.fullmatch(text)
    return (match[1], int(match[2])) if match and text not in named else (text, 0)


def _delay_s(given: object) -> float | None:
    if isinstance(given, str):
        match = _DELAY.fullmatch(given)
        return float(match[1]) * _UNIT_S[match[2]] if match else None
    return given / 1e3 if isinstance(given, int | float) else None


def _check_keys(document: Document, where: Where, of: object, known: tuple[str, ...]) -> None:
    if not isinstance(of, dict):
        raise document.error(where, f"{of!r}; want an object")
    for key in of:
        if key not in known:
            raise document.error((*where, key), f"unknown key {key!r}{hint(key, known)}")
