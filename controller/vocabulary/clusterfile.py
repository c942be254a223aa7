"""Files of jobs and of clusters, in TOML, JSON or YAML; docs/allocation.md has all keys.

A job::

    [[job]]
    name = "vision"
    workers = 8
    model = "resnet50"          # or layers_bytes = [...], or model_bytes = 102e6
    iterations = 1000
    compute_s = 0.12
    deadline_s = 600            # left out: best effort

A cluster, by its parts or by its shape (``[fabric]``)::

    [[switch]]
    name = "s1"
    slots = 8192

    [[server]]
    name = "h"                  # h1 to h8
    count = 8
    switch = "s1"
    gpus = 4
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.vocabulary import documents, fabrics, shapes
from controller.vocabulary.documents import (
    Check,
    Document,
    Where,
    flag,
    listing,
    mapping,
    name,
    number,
    one_of,
    whole,
)
from controller.vocabulary.errors import BadSpec
from controller.vocabulary.graphs import MAX_SLOTS
from controller.vocabulary.job import Job
from controller.vocabulary.topology import Link, Server, Switch, Topology
from controller.vocabulary.trees import Tree

RATE_BPS = Link("a", "b").rate_bps
_SECONDS = number(0, 1e12, "seconds")
_RATE = number(0, 1e15, "bits/s", above=True)
_COUNT = whole(1, 1_000_000)

JOB_KEYS: Mapping[str, Check] = {
    "name": name,
    "workers": _COUNT,
    "gpus_per_worker": whole(1, 1 << 16),
    "model": one_of(list(shapes.SHAPES)),
    "model_bytes": whole(1, 1 << 50),
    "layers_bytes": listing(whole(1, 1 << 50), most=100_000),
    "iterations": whole(1, 1 << 50),
    "compute_s": _SECONDS,
    "overlap": number(0, 1, "a fraction"),
    "deadline_s": number(0, 1e12, "seconds", above=True),
    "arrival_s": _SECONDS,
    "mode": one_of(("shared", "exclusive")),
    "hold_s": number(0, 1e6, "seconds", above=True),
    "skew_s": _SECONDS,
    "stages_s": listing(_SECONDS, least=4, most=4),
    "servers": listing(name),
    "fallback": name,
    "aggregate": flag,
    "tree": lambda value: None if isinstance(value, dict) else "want { root, parents, aggregators }",
}
TREE_KEYS: Mapping[str, Check] = {
    "root": name,
    "parents": mapping(name),
    "aggregators": listing(name, least=0),
}
SERVER_KEYS: Mapping[str, Check] = {
    "name": name,
    "count": _COUNT,
    "gpus": whole(0, 1 << 16),
    "switch": name,
    "rate_bps": _RATE,
}
SWITCH_KEYS: Mapping[str, Check] = {
    "name": name,
    "aggregates": flag,
    "slots": whole(0, MAX_SLOTS),
    "lanes": whole(1, 1 << 16),
    "rtt_s": number(0, 1e3, "seconds", above=True),
}
LINK_KEYS: Mapping[str, Check] = {"a": name, "b": name, "rate_bps": _RATE}
_SHAPES: Mapping[str, Callable[..., Topology]] = {
    "star": fabrics.star,
    "leaf-spine": fabrics.leaf_spine,
    "fat-tree": fabrics.fat_tree,
}
_SHAPE_KEYS = {"star": ("servers",), "leaf-spine": ("spines", "leaves", "hosts"), "fat-tree": ("k", "hosts")}
FABRIC_KEYS: Mapping[str, Check] = {
    "shape": one_of(list(_SHAPE_KEYS)),
    **dict.fromkeys(("servers", "spines", "leaves", "hosts", "k"), whole(1, 100_000)),
    "gpus": whole(1, 1 << 16),
    "rate_bps": _RATE,
    "trunk_bps": _RATE,
    "slots": whole(0, MAX_SLOTS),
    "lanes": whole(1, 1 << 16),
    "rtt_s": number(0, 1e3, "seconds", above=True),
    "programmable": number(0, 1, "a fraction"),
    "seed": whole(0, 1 << 31),
}


def read_jobs(path: Path, cluster: Topology | None = None) -> list[Job]:
    """Return the jobs of a file; with `cluster`, each is one that this could run.

    Raises BadSpec, with the line and the key.
    """
    document = documents.read(path)
    return jobs_of(document, cluster)


def jobs_of(document: Document, cluster: Topology | None = None) -> list[Job]:
    """Return the jobs of a document. See `read_jobs`."""
    document.check((), {"job": lambda _: None})
    jobs: list[Job] = []
    names: set[str] = set()
    for where, table in document.tables("job"):
        job = _job(document, where, table)
        if job.name in names:
            raise document.error((*where, "name"), f"job {job.name!r}: an earlier job has this name")
        names.add(job.name)
        try:
            if cluster is not None:
                check_job(job, cluster)
        except BadSpec as error:
            raise document.error(where, str(error)) from error
        jobs.append(job)
    if not jobs:
        raise BadSpec(f"{document.path}: no jobs; want at least one [[job]]")
    return jobs


def _job(document: Document, where: Where, table: Mapping[str, Any]) -> Job:
    what = f"job {table.get('name', where[-1])!r}"
    document.check(where, JOB_KEYS, what=what, require=("name", "workers"))
    models = [key for key in ("model", "model_bytes", "layers_bytes") if key in table]
    if len(models) != 1:
        said = " and ".join(models) or "neither is there"
        raise document.error(where, f"{what}: want one of model, model_bytes and layers_bytes: {said}")
    values = {key: value for key, value in table.items() if key not in models}
    values["layers_bytes"] = _layers(models[0], table[models[0]])
    for key in ("workers", "gpus_per_worker", "iterations"):
        if key in values:
            values[key] = int(values[key])
    for key in ("servers", "stages_s"):
        values[key] = tuple(values.get(key, ()))
    try:
        if "tree" in table:
            tree = document.check((*where, "tree"), TREE_KEYS, what=f"{what}: tree", require=("root",))
            values["tree"] = Tree(
                tree["root"], tree.get("parents", {}), frozenset(tree.get("aggregators", ()))
            )
        return Job(**values)
    except BadSpec as error:
        raise _at(document, where, table, error, what) from error


def _at(document: Document, where: Where, table: Mapping[str, Any], error: BadSpec, what: str) -> BadSpec:
    """Return the error with its place, unless it has one: the line of the first key that it names."""
    text = str(error)
    if text.startswith(document.path):
        return error
    key = next((key for key in table if key in text), "")
    return document.error((*where, key) if key else where, text if what in text else f"{what}: {text}")


def _layers(key: str, value: Any) -> tuple[int, ...]:
    match key:
        case "model":
            return shapes.layers_bytes(value)
        case "model_bytes":
            return (int(value),)
    return tuple(int(each) for each in value)


def check_job(job: Job, cluster: Topology) -> None:
    """Raise BadSpec unless the cluster has what the job names, and as many GPUs as it needs."""
    what = f"job {job.name!r}"
    if job.gpus > cluster.gpus:
        raise BadSpec(
            f"{what}: {job.workers} workers of {job.gpus_per_worker} GPUs each; the cluster has"
            f" {cluster.gpus} GPUs"
        )
    for server in (*job.servers, *([job.fallback] if job.fallback else [])):
        if server not in cluster.server:
            raise BadSpec(
                f"{what}: there is no server {server!r}; {documents.hint(server, list(cluster.server)[:99])}"
            )
    for server in job.hosts:
        wanted, has = job.servers.count(server) * job.gpus_per_worker, cluster.server[server].gpus
        if wanted > has:
            raise BadSpec(f"{what}: servers: {wanted} GPUs of {server!r}, which has {has}")
    if job.tree is None:
        return
    for switch in (*job.tree.switches, *job.tree.aggregators):
        if switch not in cluster.switch:
            raise BadSpec(f"{what}: tree: there is no switch {switch!r}")
    for child, parent in job.tree.parents.items():
        if parent not in cluster.neighbours[child]:
            raise BadSpec(f"{what}: tree: {child!r} has no link to its parent {parent!r}")
    for server in job.hosts:
        if cluster.rack_of[server] not in job.tree.switches:
            raise BadSpec(f"{what}: tree: {server!r} is at {cluster.rack_of[server]!r}, which is not in it")


def write_jobs(path: Path, jobs: Iterable[Job]) -> None:
    """Write jobs as JSON, so that `read_jobs` returns them again. Raises OSError."""
    path.write_text(json.dumps({"job": [_as_table(job) for job in jobs]}, indent=1) + "\n")


def _as_table(job: Job) -> dict[str, object]:
    needed = ("name", "workers", "layers_bytes")
    plain = asdict(Job(name=job.name, workers=job.workers))
    table = {key: value for key, value in asdict(job).items() if key in needed or value != plain[key]}
    if job.tree is not None:
        table["tree"] = {**asdict(job.tree), "aggregators": sorted(job.tree.aggregators)}
    return table


def read_cluster(path: Path) -> Topology:
    """Return the cluster of a file. Raises BadSpec, with the line and the key."""
    return cluster_of(documents.read(path))


def cluster_of(document: Document) -> Topology:
    """Return the cluster of a document. See `read_cluster`."""
    parts = ("server", "switch", "link")
    document.check((), {"name": name, **dict.fromkeys((*parts, "fabric"), lambda _: None)})
    given = [key for key in parts if key in document.data]
    if "fabric" in document.data:
        if given:
            raise document.error(
                (given[0],), f"{given[0]}: contradicts [fabric], which says all; want either"
            )
        return _fabric(document)
    servers, switches, links = [], [], []
    for where, table in document.tables("switch"):
        switches.append(_switch(document, where, table))
    for where, table in document.tables("server"):
        what = f"server {table.get('name', where[-1])!r}"
        document.check(where, SERVER_KEYS, what=what, require=("name",))
        for each in _counted(table["name"], table.get("count")):
            servers.append(_server(each, int(table.get("gpus", 1))))
            if "switch" in table:
                links.append((where, Link(each, table["switch"], table.get("rate_bps", RATE_BPS))))
    for where, table in document.tables("link"):
        what = f"link {table.get('a', '')}-{table.get('b', '')}"
        document.check(where, LINK_KEYS, what=what, require=("a", "b"))
        links.append((where, Link(**table)))
    return _assemble(document, servers, switches, links)


def _switch(document: Document, where: Where, table: Mapping[str, Any]) -> Switch:
    what = f"switch {table.get('name', where[-1])!r}"
    document.check(where, SWITCH_KEYS, what=what, require=("name",))
    values = {key: value for key, value in table.items() if key != "aggregates"}
    slots = int(table.get("slots", 8192 if table.get("aggregates", True) else 0))
    if (slots > 0) != table.get("aggregates", slots > 0):
        raise document.error((*where, "aggregates"), f"{what}: aggregates contradicts slots = {slots}")
    return Switch(**{**values, "slots": slots, "lanes": int(table.get("lanes", 64))})


def _server(name: str, gpus: int) -> Server:
    return Server(name, gpus, role="worker" if gpus else "fallback")


def _counted(name: str, count: int | None) -> list[str]:
    return [name] if count is None else [f"{name}{number}" for number in range(1, int(count) + 1)]


def _assemble(
    document: Document, servers: list[Server], switches: list[Switch], links: list[tuple[Where, Link]]
) -> Topology:
    try:
        return Topology(
            tuple(switches),
            tuple(servers),
            tuple(link for _, link in links),
            name=document.data.get("name", ""),
        )
    except BadSpec as error:
        text = str(error)
        named = {f"link {link.a}-{link.b}:": at for at, link in links}
        for key in ("switch", "server"):
            named |= {repr(table["name"]): at for at, table in document.tables(key)}
        first = min((each for each in named if each in text), key=text.find, default="")
        raise document.error(named.get(first, ()), text) from error


def _fabric(document: Document) -> Topology:
    table = document.check(("fabric",), FABRIC_KEYS, what="fabric", require=("shape",))
    shape = table["shape"]
    wanted = _SHAPE_KEYS[shape]
    document.check(("fabric",), FABRIC_KEYS, what=f"fabric {shape!r}", require=wanted)
    sizes = {key for keys in _SHAPE_KEYS.values() for key in keys}
    if wrong := [key for key in table if key in sizes and key not in wanted]:
        raise document.error(
            ("fabric", wrong[0]), f"fabric {shape!r}: {wrong[0]}: it has {', '.join(wanted)} only"
        )
    values = {key: value for key, value in table.items() if key not in sizes and key != "shape"}
    for key in ("gpus", "slots", "lanes", "seed"):
        if key in values:
            values[key] = int(values[key])
    sizes_given = [int(table[key]) for key in wanted]
    try:
        return _SHAPES[shape](*sizes_given, fabrics.Parts(**values))
    except BadSpec as error:
        raise document.error(("fabric",), str(error)) from error
