"""Topologies as YAML.

A file looks so::

    name: office
    root: s1                                  # where aggregation trees end; the first switch unless given
    link: {rate_bps: 1e9, delay_s: 50e-6}     # every link, unless it says otherwise
    switches:
      - s1
      - {name: s2, aggregates: false}         # passes gradients on as they are
    hosts:
      - h1
      - h2
      - {name: p1, role: server}              # worker, server (of what finds no slot), traffic
    links:
      - [h1, s1]
      - [h2, s2]
      - {a: s1, b: s2, rate_bps: 10e9, loss: 0.01}
      - [p1, s1]

Properties of links are the fields of `Link`. PyYAML reads it: ``pip install 'ina[yaml]'``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bmv2_topos import checks
from bmv2_topos.catalog import named
from bmv2_topos.spec import ROLES, Host, Link, Switch, Topology, TopologyError

SUFFIXES = (".yaml", ".yml")


class TopologyFileError(TopologyError):
    """The file cannot be used; the message names file, line, key, value and what would be right."""


def find_topology(text: str) -> Topology:
    """Return the topology in the file of this name, if it ends in .yaml, or else of the catalog.

    Raises TopologyError.
    """
    return load_topology(text) if text.endswith(SUFFIXES) else named(text)


def load_topology(path: str | Path) -> Topology:
    """Read a topology. Raises TopologyFileError."""
    return parse_topology(checks.read_text(path, TopologyFileError, "topology"), source=str(path))


def parse_topology(text: str, *, source: str = "topology") -> Topology:
    """Read the topology in a text; `source` names it in errors. Raises TopologyFileError."""
    yaml = _yaml(source)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or "it cannot be read"
        raise TopologyFileError(f"{source}{line}: not YAML: {why}") from error
    if node is None:
        raise TopologyFileError(f"{source}: empty; want switches, hosts and links")
    return _Reader(source).topology(node)


def dump_topology(topology: Topology) -> str:
    """Return the topology as YAML; what most links have in common is said once."""
    yaml = _yaml("YAML")
    common = dict(Counter(_properties(link) for link in topology.links).most_common(1)[0][0])
    document: dict[str, object] = {"name": topology.name} if topology.name else {}
    document["root"] = topology.root
    document["link"] = common
    document["switches"] = [
        switch.name if switch.aggregates else {"name": switch.name, "aggregates": False}
        for switch in topology.switches
    ]
    document["hosts"] = [
        host.name if host.role == "worker" else {"name": host.name, "role": host.role}
        for host in topology.hosts
    ]
    document["links"] = [_written(link, common) for link in topology.links]
    text: str = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, allow_unicode=True)
    return text


def _properties(link: Link) -> tuple[tuple[str, object], ...]:
    return tuple((key, getattr(link, key)) for key in _LINK)


def _written(link: Link, common: Mapping[str, object]) -> object:
    other = {key: value for key, value in _properties(link) if value != common[key]}
    return {"a": link.a, "b": link.b, **other} if other else [link.a, link.b]


def _yaml(what: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise TopologyFileError(f"{what}: YAML needs PyYAML: pip install 'ina[yaml]'") from None
    return yaml


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a value is read as, and what a good one is."""

    read: Callable[[str], object]
    check: checks.Check


def _number(text: str) -> object:
    value = float(text)
    return int(value) if value.is_integer() else value


def _truth(text: str) -> object:
    return {"true": True, "false": False}.get(text.lower(), text)


_NAME = _Kind(str, checks.label)
_SECONDS = _Kind(float, checks.seconds)
_CHANCE = _Kind(float, checks.chance)
_LINK: Mapping[str, _Kind] = {
    "rate_bps": _Kind(float, checks.bits_per_second),
    "delay_s": _SECONDS,
    "queue_packets": _Kind(_number, checks.whole(1, 1 << 32)),
    "loss": _CHANCE,
    "duplicate": _CHANCE,
    "reorder": _CHANCE,
    "reorder_s": _SECONDS,
}
assert {"a", "b", *_LINK} == {each.name for each in fields(Link)}
_SWITCH = {"name": _NAME, "aggregates": _Kind(_truth, checks.flag)}
_HOST = {"name": _NAME, "role": _Kind(str, checks.one_of(ROLES))}
_TOP = ("name", "root", "link", "switches", "hosts", "links")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns nodes of YAML, which know their lines, into a topology."""

    source: str

    def error(self, node: Any, what: str) -> TopologyFileError:
        return TopologyFileError(f"{self.source}:{node.start_mark.line + 1}: {what}")

    def topology(self, root: Any) -> Topology:
        """Return the topology of a document."""
        top = self.mapping(root, _TOP, "the topology")
        for key in ("switches", "hosts", "links"):
            if key not in top:
                raise self.error(root, f"{key} is missing")
        named = {key: self.value(key, top[key], _NAME) for key in ("name", "root") if key in top}
        common = self.values(top["link"], _LINK, "link") if "link" in top else {}
        switches = [self.part(Switch, node, _SWITCH, "switch") for node in self.items(top, "switches")]
        hosts = [self.part(Host, node, _HOST, "host") for node in self.items(top, "hosts")]
        nodes = [part.name for part in (*switches, *hosts)]
        links = [self.link(node, common, nodes) for node in self.items(top, "links")]
        try:
            return Topology(tuple(switches), tuple(hosts), tuple(links), **named)
        except TopologyError as error:
            raise TopologyFileError(f"{self.source}: {error}") from error

    def items(self, top: Mapping[str, Any], key: str) -> list[Any]:
        """Return the nodes of a list."""
        if top[key].id != "sequence":
            raise self.error(top[key], f"{key}: want a list, one a line after '- '")
        found: list[Any] = top[key].value
        return found

    def part(self, kind: Any, node: Any, keys: Mapping[str, _Kind], what: str) -> Any:
        """Return a switch or a host, of which a name is enough."""
        if node.id == "scalar":
            return kind(self.value(what, node, _NAME))
        values = self.values(node, keys, what)
        if "name" not in values:
            raise self.error(node, f"{what}: name is missing")
        return kind(**values)

    def link(self, node: Any, common: Mapping[str, Any], nodes: list[str]) -> Link:
        """Return a link between nodes that there are."""
        if node.id == "sequence":
            ends = [self.value("link", end, _NAME) for end in node.value]
            if len(ends) != 2:
                raise self.error(node, f"link: has {len(ends)} ends; want two, as [h1, s1]")
            values = dict(zip("ab", ends, strict=True))
        else:
            values = self.values(node, {"a": _NAME, "b": _NAME, **_LINK}, "link")
        for end in ("a", "b"):
            if end not in values:
                raise self.error(node, f"link: {end} is missing")
            if values[end] not in nodes:
                raise self.error(node, f"link: {checks.unknown('node', values[end], nodes)}")
        try:
            return Link(**{**common, **values})
        except TopologyError as error:
            raise self.error(node, str(error)) from error

    def values(self, node: Any, keys: Mapping[str, _Kind], what: str) -> dict[str, Any]:
        """Return the values of a mapping."""
        found = self.mapping(node, keys, what)
        return {key: self.value(key, value, keys[key]) for key, value in found.items()}

    def mapping(self, node: Any, keys: Any, what: str) -> dict[str, Any]:
        """Return the nodes of a mapping with some of these keys."""
        if node.id != "mapping":
            raise self.error(node, f"{what}: want 'key: value' pairs; known are {', '.join(keys)}")
        found: dict[str, Any] = {}
        for key, value in node.value:
            if key.id != "scalar" or key.value not in keys:
                given = key.value if key.id == "scalar" else f"({key.id})"
                raise self.error(key, checks.unknown("key", given, keys))
            if key.value in found:
                raise self.error(key, f"{key.value} is given twice")
            found[key.value] = value
        return found

    def value(self, key: str, node: Any, kind: _Kind) -> Any:
        """Return a single value, checked."""
        wanted = kind.check(None)
        if node.id == "scalar":
            try:
                value = kind.read(node.value)
                wanted = kind.check(value)
            except ValueError:
                pass
            else:
                if wanted is None:
                    return value
        shown = f" = {node.value!r}" if node.id == "scalar" else ""
        raise self.error(node, f"{key}{shown}: {wanted}")
