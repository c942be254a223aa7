"""Files of jobs, clusters and topologies, in TOML, JSON or YAML: one reader for all commands.

`schema` has all keys; docs/reference/files.md explains them. Jobs::

    [[job]]
    name = "vision"
    workers = 8
    model = "resnet50"          # or layers_bytes = [...], or model_bytes = 102e6
    iterations = 1000
    compute_s = 0.12
    deadline_s = 600            # from its arrival; left out: best effort

Servers and switches, by parts or by a shape (``[fabric]``)::

    [[switch]]
    name = "s1"

    [[server]]
    name = "h"                  # h1 to h8
    count = 8
    switch = "s1"
    gpus = 4

A name can stand for a table with only a name (``switch: [s1, s2]``), and two ends for a link
(``link: [[s1, s2]]``).
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any

from controller.vocabulary import documents, fabrics, schema, shapes
from controller.vocabulary.catalog import MOST_GPUS, Cluster, is_exercise, named, topology_of_exercise
from controller.vocabulary.documents import Document, Where, quoted, shown
from controller.vocabulary.errors import BadSpec, plural
from controller.vocabulary.job import Job, Straggler, Tree
from controller.vocabulary.topology import Link, Role, Server, Switch, Topology

COMPUTE_S = next(each.default for each in fields(Job) if each.name == "compute_s")
SIZES = ("model", "model_bytes", "layers_bytes")
"""Keys that say how large a gradient is."""

# --------------------------------------------------------------------------- jobs


def read_jobs(
    path: str | Path, topology: Topology | None = None, *, require: Collection[str] = ()
) -> tuple[Job, ...]:
    """Return the jobs of a file, in its order. See `jobs_of`."""
    return jobs_of(documents.read(Path(path)), topology, require=require)


def parse_jobs(text: str, *, source: str = "jobs.toml", require: Collection[str] = ()) -> tuple[Job, ...]:
    """Return the jobs of a text; `source` names it in errors, and determines its format. See `jobs_of`."""
    return jobs_of(documents.parse(text, source), require=require)


def jobs_of(
    document: Document, topology: Topology | None = None, *, require: Collection[str] = ()
) -> tuple[Job, ...]:
    """Return the jobs of a document; with `topology`, all of them must fit on it.

    `require` are keys that every job must have; "model" stands for any one of `SIZES`. Raises BadSpec, with
    the line and the key.
    """
    check_top(document)
    jobs: dict[str, Job] = {}
    for number, (where, table) in enumerate(document.tables("job"), start=1):
        job = job_of(document, where, table, number, require)
        if job.name in jobs:
            raise document.error((*where, "name"), f"job {job.name!r}: an earlier job has this name")
        if topology is not None:
            try:
                check_job(job, topology)
            except BadSpec as error:
                raise document.error(where, str(error)) from error
        jobs[job.name] = job
    if not jobs:
        raise BadSpec(f"{document.path}: no jobs; want at least one [[job]]")
    return tuple(jobs.values())


def job_of(
    document: Document, where: Where, table: Mapping[str, Any], number: int, require: Collection[str]
) -> Job:
    """Return the job that a table describes; see `jobs_of`.

    Args:
        document: The document.
        where: Path of the table in the document.
        table: The table.
        number: Position of the job in the file, for its default name.
        require: Keys that the table must have.
    """
    name = table.get("name", f"job{number}")
    what = f"job {quoted(name)}"
    needed = ("workers", *(key for key in require if key != "model"))
    values: dict[str, Any] = {"name": name, **_check(document, where, "job", what, needed)}
    sizes = [key for key in SIZES if key in table]
    known = table.get("model") in shapes.SHAPES
    if len([key for key in sizes if key != "model" or known]) > 1:
        raise document.error(where, f"{what}: want one of {', '.join(SIZES)}, not {' and '.join(sizes)}")
    if "model" in require:
        if not sizes:
            raise document.error(where, f"{what}: want one of {', '.join(SIZES)}: none is given")
        if sizes == ["model"] and not known:
            wanted = f"want one of {', '.join(map(repr, shapes.SHAPES))}, or layers_bytes beside it"
            raise document.error((*where, "model"), f"{what}: model = {shown(table['model'])}: {wanted}")
    if known:
        values["layers_bytes"] = shapes.layers_bytes(table["model"])
    if "model_bytes" in values:
        values["layers_bytes"] = (values.pop("model_bytes"),)
    try:
        return Job(**_converted(document, where, what, values))
    except BadSpec as error:
        raise _placed(document, where, table, error, what) from error


def _arguments(command: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(shlex.split(command) if isinstance(command, str) else command)


_CONVERTERS: Mapping[str, Callable[[Any], object]] = {
    "layers_bytes": lambda sizes: tuple(map(int, sizes)),
    "command": _arguments,
    "servers": tuple,
    "stages_s": tuple,
    "extra": lambda values: {key: str(each) for key, each in values.items()},
}
"""Functions that convert values of a job's table to values of `Job`'s fields, by key."""


def _converted(document: Document, where: Where, what: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values of a job's table to values of `Job`'s fields. Raises BadSpec."""
    values: dict[str, Any] = {
        key: _CONVERTERS[key](value) if key in _CONVERTERS else value for key, value in table.items()
    }
    if "duration_s" in values:
        if "iterations" in values:
            raise document.error(
                (*where, "duration_s"), f"{what}: duration_s: iterations already determines it"
            )
        stages_s = sum(values.get("stages_s", ()))
        iteration_s = values.get("iteration_s") or stages_s or values.get("compute_s") or COMPUTE_S
        iterations = values["duration_s"] / iteration_s
        if iterations > schema.MAX_ITERATIONS:
            raise document.error(
                (*where, "iteration_s" if values.get("iteration_s") else "duration_s"),
                f"{what}: duration_s = {values['duration_s']:g}, iteration_s = {iteration_s:g}:"
                f" {iterations:g} iterations; want at most {schema.MAX_ITERATIONS}",
            )
        values["iterations"] = max(1, round(iterations))
    if "straggler" in values:
        rank, last = values["straggler"]["rank"], values["workers"] - 1
        if rank > last:
            raise document.error(
                (*where, "straggler"), f"{what}: straggler: rank {rank}: the job has ranks 0 to {last}"
            )
        values["straggler"] = Straggler(int(rank), float(values["straggler"]["compute_s"]))
    if "tree" in values:
        tree = document.check((*where, "tree"), schema.TREE, what=f"{what}: tree", require=("root",))
        values["tree"] = Tree(tree["root"], tree.get("parents", {}), frozenset(tree.get("aggregators", ())))
    return values


def _placed(document: Document, where: Where, table: Mapping[str, Any], error: BadSpec, what: str) -> BadSpec:
    """Return `error` with the line of the first key that the error's text names.

    An error that already has a line is returned unchanged.
    """
    text = str(error)
    if text.startswith(document.path):
        return error
    key = next((key for key in table if key in text), "")
    return document.error((*where, key) if key else where, text if what in text else f"{what}: {text}")


def check_job(job: Job, topology: Topology) -> None:
    """Raise BadSpec unless the cluster has all servers and switches that the job names, and enough GPUs."""
    what = f"job {job.name!r}"
    if job.gpus > topology.gpus:
        raise BadSpec(
            f"{what}: {plural(job.workers, 'worker')} of {plural(job.gpus_per_worker, 'GPU')} each; "
            f"the cluster has {plural(topology.gpus, 'GPU')}"
        )
    for server in (*job.servers, *([job.fallback] if job.fallback else [])):
        if server not in topology.server:
            raise BadSpec(
                f"{what}: there is no server {server!r}; {documents.hint(server, list(topology.server)[:99])}"
            )
    serving = [server.name for server in topology.servers if server.fallback_port]
    if job.fallback and serving and job.fallback not in serving:
        raise BadSpec(
            f"{what}: fallback = {job.fallback!r}: no fallback server runs there; want {' or '.join(serving)}"
        )
    for server in job.hosts:
        wanted, available = job.servers.count(server) * job.gpus_per_worker, topology.server[server].gpus
        if wanted > available:
            raise BadSpec(f"{what}: servers: {plural(wanted, 'GPU')} of {server!r}, which has {available}")
    if job.tree is None:
        return
    for switch in (*job.tree.switches, *job.tree.aggregators):
        if switch not in topology.switch:
            raise BadSpec(f"{what}: tree: there is no switch {switch!r}")
    for child, parent in job.tree.parents.items():
        if parent not in topology.neighbours[child]:
            raise BadSpec(f"{what}: tree: {child!r} has no link to its parent {parent!r}")
    for server in job.hosts:
        if topology.rack_of[server] not in job.tree.switches:
            raise BadSpec(f"{what}: tree: {server!r} is at {topology.rack_of[server]!r}, which is not in it")


def write_jobs(path: Path, jobs: Iterable[Job]) -> None:
    """Write jobs as JSON, so that `read_jobs` returns them again. Raises OSError."""
    path.write_text(json.dumps({"job": [_as_table(job) for job in jobs]}, indent=1, default=asdict) + "\n")


def _as_table(job: Job) -> dict[str, object]:
    table = {**documents.non_default_fields(job), "layers_bytes": job.layers_bytes}
    if job.model in shapes.SHAPES:
        del table["layers_bytes" if shapes.layers_bytes(job.model) == job.layers_bytes else "model"]
    if job.tree is not None:
        table["tree"] = {**asdict(job.tree), "aggregators": sorted(job.tree.aggregators)}
    return table


# --------------------------------------------------------------------------- clusters and topologies

_SHAPES: Mapping[str, Callable[..., Topology]] = {
    "star": fabrics.star,
    "leaf-spine": fabrics.leaf_spine,
    "fat-tree": fabrics.fat_tree,
}


def read_topology(path: str | Path) -> Topology:
    """Return the switches, servers and links of a file. Raises BadSpec, with the line and the key."""
    return topology_of(documents.read(Path(path)))


def parse_topology(text: str, *, source: str = "topology.yaml") -> Topology:
    """Return a text's topology; `source` names it in errors, and determines its format. Raises BadSpec."""
    return topology_of(documents.parse(text, source))


def find_topology(text: str) -> Topology:
    """Return the topology in a file or, if `text` has no file's suffix, of the catalog. Raises BadSpec."""
    return read_topology(text) if Path(text).suffix in documents.FORMATS else named(text)


def topology_of(document: Document) -> Topology:
    """Return the topology of a document. See `read_topology`."""
    if is_exercise(document):
        return topology_of_exercise(document)
    check_top(document)
    if "fabric" in document.data:
        return _fabric(document)
    common = _common(document)
    switches = [
        Switch(**_check(document, where, "switch", f"switch {quoted(_named(value, where))}", ("name",)))
        for where, value in _entries(document, "switch")
    ]
    if not switches:
        raise BadSpec(f"{document.path}: switch is missing: want a [[switch]], or [fabric]")
    servers, links = [], list[tuple[Where, Link]]()
    for where, table, alike in _servers(document):
        own = {key: table[key] for key in schema.LINK if key in table}
        for server in alike:
            servers.append(server)
            if "switch" in table:
                values = {"a": server.name, "b": table["switch"], **common, **own}
                if "port" in table:
                    values["b_port"] = table["port"]
                links.append((where, _link(document, where, values)))
    nodes = [each.name for each in switches] + [each.name for each in servers]
    for where, value in _entries(document, "link"):
        links.append(
            (where, _link(document, where, {**common, **_link_table(document, where, value, nodes)}))
        )
    given = {key: document.data[key] for key in ("name", "root", "switch_ip") if key in document.data}
    try:
        return Topology(tuple(switches), tuple(servers), tuple(link for _, link in links), **given)
    except BadSpec as error:
        text = str(error)
        places: dict[str, Where] = {f"link {link.a}-{link.b}:": at for at, link in links}
        places["the root"] = ("root",)
        for key in ("switch", "server"):
            places |= {repr(_named(value, at)): at for at, value in _entries(document, key)}
        first = min((each for each in places if each in text), key=text.find, default="")
        raise document.error(places.get(first, ()), text) from error


def cluster_of(document: Document) -> Cluster:
    """Return a document's servers with GPUs, and their network if it describes one. Raises BadSpec."""
    if any(key in document.data for key in ("switch", "link", "fabric")):
        return Cluster.of(topology_of(document))
    check_top(document)
    servers = [(where, server) for where, _, alike in _servers(document) for server in alike]
    twice = [name for name, count in Counter(each.name for _, each in servers).items() if count > 1]
    if twice:
        where = next(at for at, each in reversed(servers) if each.name == twice[0])
        raise document.error((*where, "name"), f"two servers are called {twice[0]!r}")
    try:
        return Cluster(tuple(server for _, server in servers if server.gpus))
    except BadSpec as error:
        raise BadSpec(f"{document.path}: {error}") from error


def dump_topology(topology: Topology) -> str:
    """Return the topology as YAML. Raises BadSpec without PyYAML."""
    return documents.dump_yaml(topology_document(topology), "a topology")


def topology_document(topology: Topology) -> dict[str, object]:
    """Return the topology as a file's data; the most frequent properties of links become the defaults."""
    common = dict(Counter(_properties(link) for link in topology.links).most_common(1)[0][0])
    document: dict[str, object] = {"name": topology.name} if topology.name else {}
    document["root"] = topology.root
    if topology.switch_ip:
        document["switch_ip"] = topology.switch_ip
    document["link_defaults"] = common
    document["switch"] = [_brief(switch) for switch in topology.switches]
    document["server"] = [_brief(server) for server in topology.servers]
    document["link"] = [_written(link, common) for link in topology.links]
    return document


def _brief(node: Switch | Server) -> object:
    """Return a node's name, or a table if the node has properties other than the defaults."""
    other = {
        each.name: value
        for each in fields(node)
        if (value := getattr(node, each.name)) != each.default and each.default is not MISSING
    }
    return {"name": node.name, **other} if set(other) - {"name"} else node.name


def _properties(link: Link) -> tuple[tuple[str, object], ...]:
    return tuple((key, getattr(link, key)) for key in schema.LINK)


def _written(link: Link, common: Mapping[str, object]) -> object:
    other = {key: value for key, value in _properties(link) if value != common[key]}
    other |= {key: port for key in ("a_port", "b_port") if (port := getattr(link, key))}
    return {"a": link.a, "b": link.b, **other} if other else [link.a, link.b]


def _entries(document: Document, key: str) -> list[tuple[Where, object]]:
    """Return path and value of each table, name or pair in the list at `key`, if any. Raises BadSpec."""
    found = document.data.get(key, [])
    if not isinstance(found, list):
        raise document.error((key,), f"{key} = {shown(found)}: want a list, such as [[{key}]] in TOML")
    return [((key, number), each) for number, each in enumerate(found)]


def _named(value: object, where: Where) -> object:
    return value.get("name", where[-1]) if isinstance(value, dict) else value


def _servers(document: Document) -> Iterator[tuple[Where, Mapping[str, Any], list[Server]]]:
    """Yield path, content and servers of each table of servers. Raises BadSpec, also for too many GPUs."""
    left = MOST_GPUS
    for where, value in _entries(document, "server"):
        what = f"server {quoted(_named(value, where))}"
        table = _check(document, where, "server", what, ("name",))
        count, gpus = table.get("count", 1), _gpus(table)
        left -= count * max(gpus, 1)
        if left < 0:
            key = "gpus" if "gpus" in table else "count"
            raise document.error(
                (*where, key) if key in table else where,
                f"{what}: {plural(count, 'server')} of {plural(gpus, 'GPU')}; a cluster has at most"
                f" {MOST_GPUS:,} GPUs and servers in all",
            )
        for key in ("port", "ip", "mac"):
            if key in table and count > 1:
                raise document.error((*where, key), f"{what}: {key} is given for {count} servers; want one")
        if "port" in table and "switch" not in table:
            raise document.error((*where, "port"), f"{what}: port is given, but the key switch is missing")
        yield where, table, _alike(table)


_OF_SERVERS = (
    "cpus",
    "memory_gb",
    "vc",
    "kind",
    "rack",
    "ip",
    "mac",
    "interface",
    "address",
    "fallback_port",
)
"""Keys of a server's table that are fields of `Server`."""


def _gpus(table: Mapping[str, Any]) -> int:
    return int(table.get("gpus", table.get("role", "worker") == "worker"))  # a worker has one by default


def _alike(table: Mapping[str, Any]) -> list[Server]:
    gpus = _gpus(table)
    role: Role = table.get("role", "worker" if gpus else "fallback")
    count = table.get("count")
    name = table["name"]
    names = [name] if count is None else [f"{name}{number}" for number in range(1, count + 1)]
    other = {key: table[key] for key in _OF_SERVERS if key in table}
    return [Server(each, gpus, role, **other) for each in names]


def _common(document: Document) -> Mapping[str, Any]:
    if "link_defaults" not in document.data:
        return {}
    return _check(document, ("link_defaults",), "link_defaults", "link_defaults", ())


def _link_table(document: Document, where: Where, value: object, nodes: Sequence[str]) -> Mapping[str, Any]:
    """Return the values of a link; check that its ends are nodes. Raises BadSpec."""
    if isinstance(value, list):
        if len(value) != 2:
            raise document.error(where, f"link: has {len(value)} ends; want two, as [h1, s1]")
        values: Mapping[str, Any] = dict(zip("ab", value, strict=True))
    else:
        values = _check(document, where, "link", "link", ("a", "b"))
    for end in ("a", "b"):
        if wanted := documents.name(values[end]):
            raise document.error(where, f"link {shown(values[end])}: {wanted}")
        if values[end] not in nodes:
            raise document.error(
                where, f"link: unknown node {values[end]!r}; {documents.hint(values[end], nodes)}"
            )
    return values


def _link(document: Document, where: Where, values: Mapping[str, Any]) -> Link:
    try:
        return Link(**values)
    except BadSpec as error:
        raise document.error(where, str(error)) from error


def _fabric(document: Document) -> Topology:
    if given := [key for key in ("server", "switch", "link") if key in document.data]:
        raise document.error(
            (given[0],),
            f"{given[0]}: contradicts [fabric], which describes the whole network; want one of them",
        )
    table = _check(document, ("fabric",), "fabric", "fabric", ("shape",))
    shape = table["shape"]
    wanted = schema.SHAPES[shape]
    _check(document, ("fabric",), "fabric", f"fabric {shape!r}", wanted)
    sizes = {key for keys in schema.SHAPES.values() for key in keys}
    if wrong := [key for key in table if key in sizes and key not in wanted]:
        raise document.error(
            ("fabric", wrong[0]), f"fabric {shape!r}: {wrong[0]}: this shape has {', '.join(wanted)} only"
        )
    values = {key: value for key, value in table.items() if key not in sizes and key != "shape"}
    try:
        found = _SHAPES[shape](*(table[key] for key in wanted), fabrics.Parts(**values))
    except BadSpec as error:
        raise document.error(("fabric",), str(error)) from error
    own = {key: document.data[key] for key in ("name", "root") if key in document.data}
    return replace(found, **own)


# --------------------------------------------------------------------------- keys


def check_top(document: Document) -> None:
    """Raise BadSpec for an unknown key at the top of a document, also for a key of earlier versions."""
    _check(document, (), "", "", ())


def _check(
    document: Document, where: Where, kind: str, what: str, require: Collection[str]
) -> Mapping[str, Any]:
    """Return the checked table at `where`; a name stands for a table with just this name. Raises BadSpec.

    Whole numbers are returned as integers, also where the file has 1e3.
    """
    value: Any = document.data
    for part in where:
        value = value[part]
    if isinstance(value, str) and kind in ("switch", "server"):
        if wanted := documents.name(value):
            raise document.error(where, f"{what}: {wanted}")
        return {"name": value}
    if isinstance(value, dict):
        for key in value:
            if key in schema.OLD.get(kind, {}) and key not in schema.TABLES[kind]:
                begin = f"{what}: " if what else ""
                raise document.error((*where, key), f"{begin}{key} {schema.OLD[kind][key]}")
    checks = {key: each.check for key, each in schema.TABLES[kind].items()}
    table = document.check(where, checks, what=what, require=require)
    return {key: int(number) if key in _WHOLE[kind] else number for key, number in table.items()}


_WHOLE: Mapping[str, frozenset[str]] = {
    kind: frozenset(
        key for key, each in keys.items() if documents.json_schema(each.check).get("type") == "integer"
    )
    for kind, keys in schema.TABLES.items()
}
"""The keys of whole numbers, by kind of table."""


def unused(document: Document, command: str) -> list[str]:
    """Return the keys of a document that a command does not use, such as "job.overlap", each once."""
    command = schema.LIKE.get(command, command)
    found = {
        f"{kind}.{key}" if kind else key: None
        for kind, table in _tables(document)
        for key in table
        if (known := schema.TABLES[kind].get(key)) is not None and command not in known.used_by
    }
    return [key for key in found if "." not in key or key.partition(".")[0] not in found]


def unusual(document: Document) -> list[str]:
    """Return a sentence for each value that seems to be in a wrong unit; equal sentences only once."""
    found: dict[str, None] = {}
    for kind, table in _tables(document):
        for key, (least, most, unit) in schema.UNUSUAL.items():
            if (value := table.get(key)) and not least <= value <= most:
                found[f"{kind}: {key} = {value:g}: it is in {unit}"] = None
    return list(found)


def _tables(document: Document) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables of a document with their kinds, the document itself first."""
    yield "", document.data
    for kind in (*schema.TABLES,)[1:]:
        value = document.data.get(kind)
        tables = value if isinstance(value, list) else [value]
        yield from ((kind, table) for table in tables if isinstance(table, dict))
