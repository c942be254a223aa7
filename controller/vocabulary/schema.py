"""Every key that a file may have: its check, its default, and the commands that use it.

There is one table here for each kind of table in a file. A file made for one command is accepted by all: keys
that a command does not use are checked as well, and `files.unused` names them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from controller.vocabulary.documents import (
    Check,
    flag,
    ipv4,
    json_schema,
    listing,
    mac,
    mapping,
    name,
    number,
    one_of,
    whole,
    with_schema,
)
from controller.vocabulary.graphs import MAX_SLOTS
from controller.vocabulary.job import (
    CONGESTION,
    CONGESTION_GROUP,
    ENCODINGS,
    MAX_PRIORITY,
    MAX_WINDOW,
    MODES,
    ON_LATE,
)
from controller.vocabulary.topology import MAX_PORT, MAX_RATE_BPS, MAX_S, ROLES

MAX_WORKERS = 1_000_000
MAX_ITERATIONS = _BYTES = 1 << 50
LONGEST_COMMAND = 1 << 17
"""Linux starts no program with a longer argument; to split a string takes time that grows with its square."""

MACHINES = "machines"
"""Commands for several machines: ``admit --cluster``, ``run --hosts``, ``doctor``, ``fallback --serve``."""
LIVE = "schedule live --cluster"
"""The command ``schedule live`` with a cluster, which also decides on trees and slots. Without a cluster,
``schedule live`` has one switch."""
ALLOCATION = ("alloc", "place", "route", "cluster simulate", LIVE)
TESTBED = ("sim", "scenario")
SCHEDULE = ("schedule simulate", "schedule plan", "schedule live", LIVE)
LIKE = {
    "schedule sweep": "schedule simulate",
    "schedule tune": "schedule simulate",
    "advise": "cluster simulate",
}
"""For some commands: another command that uses the same keys."""
COMMANDS = tuple(dict.fromkeys(("run", *TESTBED, "topo", MACHINES, *ALLOCATION, *SCHEDULE)))


@dataclass(frozen=True, slots=True)
class FileKey:
    """One key: the check of its value, its meaning with its unit, its default, the commands that use it."""

    check: Check
    meaning: str
    default: str
    used_by: tuple[str, ...]


@with_schema(type="object")
def _anything(value: object) -> str | None:
    return None  # checked separately


@with_schema(
    oneOf=[
        {
            "type": "string",
            "maxLength": LONGEST_COMMAND,
            "pattern": r"""^[^"'\\\x00]*[^"'\\\s\x00][^"'\\\x00]*$""",
        },
        {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": r"^[^\x00]*$"}},
    ],
)
def _command(value: object) -> str | None:
    wanted = (
        "want the program and its arguments, "
        f"in one string of up to {LONGEST_COMMAND} characters or as a list of strings"
    )
    if isinstance(value, str) and len(value) <= LONGEST_COMMAND:
        try:
            return _command(shlex.split(value))
        except ValueError as error:
            return f"{error}; {wanted}"
    if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
        return wanted
    if any(re.search("[\0\ud800-\udfff]", part) for part in value):
        return "want no null character, and no half of a character (surrogate): no program accepts these"
    return None


@with_schema(enum=[*CONGESTION])
def _congestion(value: object) -> str | None:
    """Check the name of a rule for windows; a user's own rule is only searched for where it is used."""
    own = "path.py:Name, package.module:Name or path.so:function"
    wanted = f"want one of {', '.join(map(repr, CONGESTION))}, or one of your own: {own}"
    if not isinstance(value, str):
        return wanted
    source, _, what = value.rpartition(":")
    if value in CONGESTION or (source and what.isidentifier()):
        return None
    from importlib.metadata import entry_points  # takes a tenth of a command's start; only plug-ins need it

    return None if value in {point.name for point in entry_points(group=CONGESTION_GROUP)} else wanted


@with_schema(
    type="object",
    required=["rank", "compute_s"],
    additionalProperties=False,
    properties={
        "rank": {"type": "integer", "minimum": 0, "maximum": MAX_WORKERS},
        "compute_s": {"type": "number", "minimum": 0, "maximum": 1e12},
    },
)
def _straggler(value: object) -> str | None:
    wanted = "want { rank = 0, compute_s = 0.01 } with a rank of the job and its seconds"
    if not isinstance(value, dict) or set(value) != {"rank", "compute_s"}:
        return wanted
    good = whole(0, MAX_WORKERS)(value["rank"]) is None and _SECONDS(value["compute_s"]) is None
    return None if good else wanted


TREE: Mapping[str, Check] = {
    "root": name,
    "parents": mapping(name),
    "aggregators": listing(name, least=0),
}


@with_schema(
    type="object",
    required=["root"],
    additionalProperties=False,
    properties={key: json_schema(check) for key, check in TREE.items()},
)
def _tree(value: object) -> str | None:
    return None  # checked separately


def _switch_address(value: object) -> str | None:
    good = isinstance(value, str) and re.fullmatch(r"unix:.+|(grpc://)?[^:/]+:[0-9]{1,5}", value)
    return None if good else "want grpc://HOST:PORT or unix:PATH"


@with_schema(type=["string", "number"])
def _text(value: object) -> str | None:
    good = isinstance(value, str | int | float)
    return None if good else "want a text or a number"


_SECONDS = number(0, MAX_S, "seconds")
_four_times = listing(_SECONDS, least=4, most=4)


@with_schema(**json_schema(_four_times), contains={"exclusiveMinimum": 0})
def _stages(value: object) -> str | None:
    wanted = _four_times(value)
    none = isinstance(value, list) and not any(value)
    return wanted or ("want at least one above 0" if none else None)


_ABOVE = number(0, MAX_S, "seconds", above=True)
_RATE = number(0, MAX_RATE_BPS, "bits per second, 0 (unlimited) or more")
_PART = number(0, 1, "a fraction")
_CHANCE = number(0, 1, "a probability")
_COUNT = whole(1, 1_000_000)

UNUSUAL: Mapping[str, tuple[float, float, str]] = {
    **dict.fromkeys(("rate_bps", "trunk_bps"), (1e6, MAX_RATE_BPS, "bits per second (100 Gb/s is 100e9)")),
    **dict.fromkeys(("hold_s", "rtt_s", "delay_s", "reorder_s"), (0.0, 1.0, "seconds (20 µs is 20e-6)")),
}
"""Keys that are often given in a wrong unit, each with the least and the greatest usual value (except 0), and
the unit."""

_JOBS = tuple(command for command in COMMANDS if command != MACHINES)
"""The commands that read jobs."""
_SERVERS = tuple(command for command in COMMANDS if command != "scenario")
"""The commands that read servers; a scenario names its topology."""
_SUMMED = (*ALLOCATION, *TESTBED)
_TIMED = (*TESTBED, *ALLOCATION, *SCHEDULE)
_PACKETS = ("run", *TESTBED)

JOB: Mapping[str, FileKey] = {
    "name": FileKey(name, "unique among jobs", "job1, job2, …", _JOBS),
    "workers": FileKey(whole(1, MAX_WORKERS), "number of ranks", "required", _JOBS),
    "gpus_per_worker": FileKey(whole(1, 1 << 16), "GPUs of each rank", "1", (*ALLOCATION, *SCHEDULE)),
    "command": FileKey(
        _command, "program and arguments of every worker", "none", ("run", "schedule live", LIVE)
    ),
    "arrival_s": FileKey(
        _SECONDS, "arrival time, seconds from the start of the run", "0", (*_PACKETS, *ALLOCATION, *SCHEDULE)
    ),
    "deadline_s": FileKey(
        _ABOVE,
        "deadline, seconds from its own arrival",
        "best effort",
        (*ALLOCATION, *SCHEDULE),
    ),
    "on_late": FileKey(
        one_of(ON_LATE),
        "what to do with a job that can no longer meet its deadline: end, or best-effort",
        "end",
        ("alloc", "cluster simulate", LIVE),
    ),
    "iterations": FileKey(whole(1, MAX_ITERATIONS), "iterations to do", "100", _TIMED),
    "duration_s": FileKey(
        _ABOVE,
        "seconds that it runs when alone, instead of iterations",
        "from iterations",
        _TIMED,
    ),
    "model": FileKey(
        name,
        "name of the model; a known one gives layers_bytes",
        "not given",
        (*ALLOCATION, *SCHEDULE),
    ),
    "model_bytes": FileKey(
        whole(1, _BYTES), "bytes of its gradient, as one layer", "one of these three", _SUMMED
    ),
    "layers_bytes": FileKey(
        listing(whole(1, _BYTES), most=100_000),
        "bytes of each layer's gradient, front layer first",
        "one of these three",
        _SUMMED,
    ),
    "batch": FileKey(whole(0, _BYTES), "samples of an iteration on each GPU", "not given", SCHEDULE),
    "compute_s": FileKey(_SECONDS, "forward and backward pass of one iteration, seconds", "0.001", _TIMED),
    "overlap": FileKey(_PART, "fraction of computing that overlaps with sending gradients", "0", ALLOCATION),
    "jitter": FileKey(
        number(0, 1, "a fraction"),
        "largest random deviation of each pass, as a fraction of it",
        "0",
        TESTBED,
    ),
    "straggler": FileKey(_straggler, "a rank with a computing time of its own", "none", TESTBED),
    "skew_s": FileKey(
        _SECONDS, "seconds that the slowest rank computes longer than other ranks", "0", ALLOCATION
    ),
    "stages_s": FileKey(
        _stages,
        "seconds of one iteration on storage, CPU, GPU and network",
        "not known",
        (*SCHEDULE, "cluster simulate"),
    ),
    "iteration_s": FileKey(
        _ABOVE, "seconds of one iteration alone on its GPUs", "stages, or computing", SCHEDULE
    ),
    "estimate_s": FileKey(
        _ABOVE,
        "estimate of how long it runs alone, seconds",
        "not given",
        (*SCHEDULE, "cluster simulate"),
    ),
    "restart_s": FileKey(_SECONDS, "seconds lost at every start", "0", (*SCHEDULE, "cluster simulate")),
    "user": FileKey(name, "who submitted it", "not given", SCHEDULE),
    "vc": FileKey(name, "its virtual cluster", "none", SCHEDULE),
    "opportunistic": FileKey(
        flag, "the job uses only resources that other jobs leave unused (AntMan)", "false", SCHEDULE
    ),
    "extra": FileKey(mapping(_text), "further values, for policies that use them", "none", SCHEDULE),
    "mode": FileKey(one_of(MODES), "exclusive or shared slots", "shared", ALLOCATION),
    "slots": FileKey(whole(0, 1 << 32), "aggregator slots of its own", "a share", _PACKETS),
    "window": FileKey(whole(1, MAX_WINDOW), "packets in flight of each worker", "see the command", _PACKETS),
    "priority": FileKey(
        whole(0, MAX_PRIORITY), "priority of its packets; 255 is the most urgent", "as measured", _PACKETS
    ),
    "preempt": FileKey(flag, "its packets may take slots from lower priorities", "false", _PACKETS),
    "congestion": FileKey(
        _congestion,
        "congestion control: fixed, aimd, a2tp, tcp, or [your own](../guides/own-rules.md)",
        "fixed",
        _PACKETS,
    ),
    "numbers": FileKey(one_of(ENCODINGS), "encoding of float32 in packets", "exponent", _PACKETS),
    "hold_s": FileKey(
        number(0, 1e6, "seconds", above=True),
        "measured seconds that a slot is held",
        "a round trip",
        ALLOCATION,
    ),
    "servers": FileKey(listing(name), "the server of each rank", "to be placed", ALLOCATION),
    "fallback": FileKey(name, "the server that sums packets without a slot", "to be chosen", ALLOCATION),
    "aggregate": FileKey(flag, "false: it uses no switch memory", "true", ALLOCATION),
    "tree": FileKey(_tree, "its switches: { root, parents, aggregators }", "shortest paths", ALLOCATION),
}

_NETWORK = ("run", "sim", "topo", MACHINES, *ALLOCATION)
_ADDRESSED = (MACHINES, "topo")
_PORTS = ("run", "sim", *_ADDRESSED)
_PORT = whole(1, MAX_PORT)
_EMULATED = (*TESTBED, "topo")
LINK: Mapping[str, FileKey] = {
    "rate_bps": FileKey(
        _RATE,
        "rate in each direction, bits/s; 0: unlimited",
        "10e9",
        (*_EMULATED, *ALLOCATION),
    ),
    "delay_s": FileKey(_SECONDS, "delay one way, seconds", "2e-6", _EMULATED),
    "queue_packets": FileKey(whole(1, 1 << 32), "longest queue at a switch's port", "2048", _EMULATED),
    "loss": FileKey(_CHANCE, "probability that a packet is lost", "0", _EMULATED),
    "duplicate": FileKey(_CHANCE, "probability that a packet arrives twice", "0", _EMULATED),
    "reorder": FileKey(_CHANCE, "probability that a packet is held back", "0", _EMULATED),
    "reorder_s": FileKey(_SECONDS, "longest time that a packet is held back, seconds", "50e-6", _EMULATED),
}
ENDS: Mapping[str, FileKey] = {
    "a": FileKey(name, "one end", "required", _NETWORK),
    "b": FileKey(name, "the other end", "required", _NETWORK),
    "a_port": FileKey(_PORT, "port at `a`, if `a` is a switch", "the first free port", _PORTS),
    "b_port": FileKey(_PORT, "port at `b`, if `b` is a switch", "the first free port", _PORTS),
}
SWITCH: Mapping[str, FileKey] = {
    "name": FileKey(name, "unique among switches and servers", "required", _NETWORK),
    "slots": FileKey(whole(0, MAX_SLOTS), "aggregator slots; 0: it sums nothing", "8192", _NETWORK),
    "lanes": FileKey(whole(1, 1 << 16), "32-bit values of a slot", "64", ALLOCATION),
    "rtt_s": FileKey(
        number(0, 1e3, "seconds", above=True),
        "seconds from a packet's departure until its slot is free",
        "20e-6",
        ALLOCATION,
    ),
    "p4runtime": FileKey(
        _switch_address,
        "address of its P4Runtime server: grpc://HOST:PORT or unix:PATH",
        "not given",
        (MACHINES,),
    ),
}
SERVER: Mapping[str, FileKey] = {
    "name": FileKey(name, "unique among switches and servers", "required", _SERVERS),
    "count": FileKey(_COUNT, "how many servers: name1, name2, …", "one", _SERVERS),
    "gpus": FileKey(
        whole(0, 1 << 16), "GPUs for workers", "1 for role worker, else 0", (*ALLOCATION, *SCHEDULE)
    ),
    "role": FileKey(one_of(ROLES), "its use", "worker, or fallback if gpus = 0", _NETWORK),
    "switch": FileKey(name, "the switch that it is linked to", "given by [[link]]", _NETWORK),
    "cpus": FileKey(number(0, 1e9, "cores", above=True), "CPU cores", "unlimited", SCHEDULE),
    "memory_gb": FileKey(number(0, 1e9, "GB", above=True), "memory", "unlimited", SCHEDULE),
    "vc": FileKey(name, "its virtual cluster", "none", SCHEDULE),
    "kind": FileKey(name, "kind of its GPUs", "not given", SCHEDULE),
    "rack": FileKey(name, "its rack", "not given", SCHEDULE),
    "port": FileKey(_PORT, "its port of `switch`", "the first free one", _PORTS),
    "ip": FileKey(ipv4, "its IPv4 address at that port", "10.0.0.1, …, by position", _ADDRESSED),
    "mac": FileKey(mac, "its MAC address there", "02:00:00:00:00:01, …, by position", _ADDRESSED),
    "interface": FileKey(name, "name of its network interface on that link", "not given", (MACHINES,)),
    "address": FileKey(name, "address at which other machines reach its processes", "as ip", (MACHINES,)),
    "fallback_port": FileKey(
        whole(1, 0xFFFF),
        "TCP port of ina fallback --serve on this server",
        "9560 for role fallback",
        (MACHINES,),
    ),
    **LINK,
}
SHAPES: Mapping[str, tuple[str, ...]] = {
    "star": ("servers",),
    "leaf-spine": ("spines", "leaves", "hosts"),
    "fat-tree": ("k", "hosts"),
}
FABRIC: Mapping[str, FileKey] = {
    "shape": FileKey(one_of(list(SHAPES)), "star, leaf-spine or fat-tree", "required", _SERVERS),
    "servers": FileKey(whole(1, 100_000), "number of servers", "required by star", _SERVERS),
    "spines": FileKey(whole(1, 100_000), "number of spine switches", "required by leaf-spine", _SERVERS),
    "leaves": FileKey(whole(1, 100_000), "number of leaf switches", "required by leaf-spine", _SERVERS),
    "hosts": FileKey(
        whole(1, 100_000), "servers at each leaf or edge switch", "required by leaf-spine, fat-tree", _SERVERS
    ),
    "k": FileKey(whole(1, 100_000), "number of ports of each switch", "required by fat-tree", _SERVERS),
    "gpus": FileKey(whole(1, 1 << 16), "GPUs of each server", "8", (*ALLOCATION, *SCHEDULE)),
    "rate_bps": FileKey(
        _RATE,
        "rate of servers' links, bits/s; 0: unlimited",
        "100e9",
        (*_EMULATED, *ALLOCATION),
    ),
    "trunk_bps": FileKey(
        _RATE,
        "rate of links between switches, bits/s; 0: unlimited",
        "100e9",
        (*_EMULATED, *ALLOCATION),
    ),
    "slots": FileKey(whole(0, MAX_SLOTS), "aggregator slots of each switch", "8192", _NETWORK),
    "lanes": FileKey(whole(1, 1 << 16), "32-bit values of a slot", "64", ALLOCATION),
    "rtt_s": FileKey(
        number(0, 1e3, "seconds", above=True),
        "seconds from a packet's departure until its slot is free",
        "20e-6",
        ALLOCATION,
    ),
    "programmable": FileKey(_PART, "fraction of the switches that sum, drawn at random", "1", _NETWORK),
    "seed": FileKey(whole(0, 1 << 31), "seed of this random choice", "0", _NETWORK),
}
TOP: Mapping[str, FileKey] = {
    "name": FileKey(name, "name of the cluster or topology", "none", _NETWORK),
    "root": FileKey(name, "the root switch of aggregation trees", "the first switch", (*_PORTS,)),
    "switch_ip": FileKey(ipv4, "the IPv4 address that workers send to", "10.0.255.1", (MACHINES,)),
    "link_defaults": FileKey(
        _anything,
        "default values for the keys of every [[link]]",
        "none",
        (*_NETWORK, "scenario"),
    ),
    "job": FileKey(_anything, "the jobs", "none", _JOBS),
    "server": FileKey(_anything, "the servers", "none", _SERVERS),
    "switch": FileKey(_anything, "the switches", "none", _NETWORK),
    "link": FileKey(_anything, "the links", "none", _NETWORK),
    "fabric": FileKey(_anything, "a shape, instead of servers, switches and links", "none", _SERVERS),
    "summary": FileKey(
        _anything, "one line that describes the scenario", "required by scenario", ("scenario",)
    ),
    "topology": FileKey(_anything, "a topology's name or file", "required by scenario", ("scenario",)),
    "program": FileKey(_anything, "program of a scenario's switches", "exclusive", ("scenario",)),
    "lanes": FileKey(_anything, "values of a packet in a scenario", "32", ("scenario",)),
    "seed": FileKey(_anything, "seed of a scenario", "0", ("scenario",)),
    "limit_s": FileKey(_anything, "longest time of a scenario, seconds", "60", ("scenario",)),
    "fault": FileKey(_anything, "faults of a scenario", "none", ("scenario",)),
    "check": FileKey(_anything, "checks of a scenario", "none", ("scenario",)),
}
TABLES: Mapping[str, Mapping[str, FileKey]] = {
    "": TOP,
    "job": JOB,
    "server": SERVER,
    "switch": SWITCH,
    "link": {**ENDS, **LINK},
    "link_defaults": LINK,
    "fabric": FABRIC,
}
"""The keys of each kind of table in a file; "": the top of the file."""

OLD: Mapping[str, Mapping[str, str]] = {
    "": {
        "switches": "is not a key: want switch",
        "hosts": "is not a key: want server",
        "links": "is not a key: want link",
        "node": "is not a key: want server",
        "jobs": "is not a key: want job",
    },
    "job": {
        "start_s": "is not a key: want arrival_s",
        "submit_s": "is not a key: want arrival_s",
        "job_id": "is not a key: want name",
        "id": "is not a key: want name",
        "gpus": "is not a key: want gpus_per_worker, GPUs of each worker",
        "tensors": "is not a key: want layers_bytes: four bytes for each of its elements",
        **dict.fromkeys(
            ("storage_s", "cpu_s", "gpu_s", "network_s"),
            "is not a key: want stages_s = [storage, cpu, gpu, network]",
        ),
    },
    "switch": {"aggregates": "is not a key: want slots = 0 for a switch that does not sum"},
}
"""Keys that earlier versions of the files had: by name of the table ("": the whole file), then by key, the
message that says what replaces the key."""
