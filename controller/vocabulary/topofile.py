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
      - {name: p1, role: fallback}            # worker, fallback (sums what finds no slot), traffic
    links:
      - [h1, s1]
      - [h2, s2]
      - {a: s1, b: s2, rate_bps: 10e9, loss: 0.01}
      - [p1, s1]

Properties of links are the fields of `Link`. PyYAML reads it: ``pip install 'ina[yaml]'``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from controller.vocabulary import documents
from controller.vocabulary import values as checks
from controller.vocabulary.catalog import named
from controller.vocabulary.documents import Check, Document, Where
from controller.vocabulary.errors import BadSpec
from controller.vocabulary.topology import ROLES, Link, Role, Server, Switch, Topology

SUFFIXES = (".yaml", ".yml")


def find_topology(text: str) -> Topology:
    """Return the topology in the file of this name, if it ends in .yaml, or else of the catalog.

    Raises BadSpec.
    """
    return load_topology(text) if text.endswith(SUFFIXES) else named(text)


def load_topology(path: str | Path) -> Topology:
    """Read a topology. Raises BadSpec."""
    return parse_topology(checks.read_text(path, BadSpec, "topology"), source=str(path))


def parse_topology(text: str, *, source: str = "topology") -> Topology:
    """Read the topology in a text; `source` names it in errors. Raises BadSpec."""
    return _topology(documents.parse(text, source))


def dump_topology(topology: Topology) -> str:
    """Return the topology as YAML; what most links have in common is said once."""
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
        for host in topology.servers
    ]
    document["links"] = [_written(link, common) for link in topology.links]
    return documents.dump_yaml(document, "a topology")


def _properties(link: Link) -> tuple[tuple[str, object], ...]:
    return tuple((key, getattr(link, key)) for key in _LINK)


def _written(link: Link, common: Mapping[str, object]) -> object:
    other = {key: value for key, value in _properties(link) if value != common[key]}
    return {"a": link.a, "b": link.b, **other} if other else [link.a, link.b]


def _listing(value: object) -> str | None:
    return None if isinstance(value, list) else "want a list, one a line after '- '"


_LINK: Mapping[str, tuple[type, Check]] = {
    "rate_bps": (float, checks.bits_per_second),
    "delay_s": (float, checks.seconds),
    "queue_packets": (int, documents.whole(1, 1 << 32)),
    "loss": (float, checks.chance),
    "duplicate": (float, checks.chance),
    "reorder": (float, checks.chance),
    "reorder_s": (float, checks.seconds),
}
"""What properties are, and checks of their values."""
assert {"a", "b", *_LINK} == {each.name for each in fields(Link)}
PROPERTIES: Mapping[str, Check] = {key: check for key, (_, check) in _LINK.items()}
"""Checks of the properties of links."""
_SWITCH: Mapping[str, Check] = {"name": checks.label, "aggregates": checks.flag}
_HOST: Mapping[str, Check] = {"name": checks.label, "role": checks.one_of(ROLES)}
_PARTS = ("switches", "hosts", "links")
_TOP: Mapping[str, Check] = {
    "name": checks.label,
    "root": checks.label,
    "link": lambda value: None,  # a table, checked by itself
    **dict.fromkeys(_PARTS, _listing),
}


def _topology(document: Document) -> Topology:
    """Return the topology of a document. Raises BadSpec or BadSpec."""
    top = document.check((), _TOP, require=_PARTS)
    common = _link_values(document, ("link",), "link") if "link" in top else {}
    switches = [
        _switch(_part(document, "switches", at, _SWITCH, "switch")) for at in _places(top, "switches")
    ]
    hosts = [_server(_part(document, "hosts", at, _HOST, "host")) for at in _places(top, "hosts")]
    nodes = [each.name for each in switches] + [each.name for each in hosts]
    links = [_link(document, at, common, nodes) for at in _places(top, "links")]
    named = {key: top[key] for key in ("name", "root") if key in top}
    try:
        return Topology(tuple(switches), tuple(hosts), tuple(links), **named)
    except BadSpec as error:
        raise BadSpec(f"{document.path}: {error}") from error


def _switch(table: Mapping[str, Any]) -> Switch:
    return Switch(table["name"]) if table.get("aggregates", True) else Switch(table["name"], 0)


def _server(table: Mapping[str, Any]) -> Server:
    role: Role = table.get("role", "worker")
    return Server(table["name"], int(role == "worker"), role)


def _places(top: Mapping[str, Any], key: str) -> range:
    return range(len(top[key]))


def _part(document: Document, key: str, at: int, table: Mapping[str, Check], what: str) -> Mapping[str, Any]:
    """Return the fields of a switch or a host, of which a name is enough."""
    value = document.data[key][at]
    if isinstance(value, dict):
        return document.check((key, at), table, what=what, require=("name",))
    return {"name": _name(document, (key, at), value, what)}


def _name(document: Document, where: Where, value: object, what: str) -> str:
    if wanted := checks.label(value):
        raise document.error(where, f"{what} {documents.shown(value)}: {wanted}")
    return str(value)


def _link(document: Document, at: int, common: Mapping[str, Any], nodes: Sequence[str]) -> Link:
    """Return a link between nodes that there are."""
    where = ("links", at)
    value = document.data["links"][at]
    if isinstance(value, list):
        if len(value) != 2:
            raise document.error(where, f"link: has {len(value)} ends; want two, as [h1, s1]")
        values = {end: _name(document, where, name, "link") for end, name in zip("ab", value, strict=True)}
    else:
        values = _link_values(document, where, "link", a=checks.label, b=checks.label)
    for end in ("a", "b"):
        if end not in values:
            raise document.error(where, f"link: {end} is missing")
        if values[end] not in nodes:
            raise document.error(where, f"link: {checks.unknown('node', values[end], nodes)}")
    try:
        return Link(**{**common, **values})
    except BadSpec as error:
        raise document.error(where, str(error)) from error


def _link_values(document: Document, where: Where, what: str, **ends: Check) -> dict[str, Any]:
    found = document.check(where, {**ends, **PROPERTIES}, what=what)
    return {key: _LINK[key][0](value) if key in _LINK else value for key, value in found.items()}
