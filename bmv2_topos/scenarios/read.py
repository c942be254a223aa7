"""Scenarios as files, in TOML (or JSON, or YAML).

A file looks like this::

    summary = "One worker computes longer: the others wait for it"
    topology = "single-switch:4"            # a name of the catalog
    program = "exclusive"                   # a program of p4src, or a file beside this one: "mine.p4"
    lanes = 32
    link_defaults = { rate_bps = 1e9 }      # for every link, instead of the topology's values

    [[job]]                                 # as in a job file
    name = "slow"
    workers = 4
    slots = 64
    layers_bytes = [8000]
    iterations = 5
    compute_s = 0.002
    straggler = { rank = 1, compute_s = 0.05 }

    [[fault]]
    kind = "loss"                           # a property of a link; with at_s and for_s: for that time only
    link = ["h1", "s1"]
    value = 0.02

    [[fault]]
    kind = "kill"
    job = "slow"
    rank = 2
    iteration = 3

    [[fault]]
    kind = "restart-job"                    # or restart-fallback, region, straggle, remove-job
    job = "slow"
    at_s = 0.02
    down_s = 0.001

    [[check]]
    job = "slow"
    metric = "iteration_s"                  # or fails = "words of its message"
    least = 0.05
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bmv2_topos.faults import read_fault
from bmv2_topos.scenarios.model import Check, Scenario
from bmv2_topos.testbeds.virtual import VirtualSettings
from controller.errors import ProgramMismatch
from controller.switches.programs import source_of
from controller.vocabulary import BadSpec, Topology, documents
from controller.vocabulary.documents import Document, Where
from controller.vocabulary.files import check_top, find_topology, jobs_of
from controller.vocabulary.schema import LINK
from p4src.programs import LANES, is_file

SHIPPED = Path(__file__).parent / "shipped"

DEFAULTS: Mapping[str, Any] = {"program": "exclusive", "lanes": 32, "seed": 0, "limit_s": 60.0}
"""Settings that a file may change, with their values if it does not."""
_TOP: Mapping[str, documents.Check] = {
    "summary": documents.name,
    "topology": documents.name,
    "program": documents.name,
    "lanes": documents.whole(32, 256),
    "seed": documents.whole(0, 1 << 31),
    "limit_s": documents.number(0, 3600, "seconds", above=True),
}
_PROPERTIES: Mapping[str, documents.Check] = {key: each.check for key, each in LINK.items()}
_CHECK: Mapping[str, documents.Check] = {
    "job": documents.name,
    "metric": documents.name,
    "least": documents.number(-1e18, 1e18),
    "most": documents.number(-1e18, 1e18),
    "fails": documents.name,
}


def shipped() -> Mapping[str, Path]:
    """Return the files of the package's own scenarios, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}


_NEEDED = ("summary", "topology", "job")


def find_scenario(text: str) -> Scenario:
    """Return one of the package's own scenarios by its name, or a scenario from a file. Raises BadSpec."""
    known = shipped()
    if text in known:
        return load_scenario(known[text])
    if Path(text).suffix in documents.FORMATS:
        return load_scenario(Path(text))
    raise BadSpec(f"no scenario {text!r}; {documents.hint(text, list(known))}; or a file that ends in .toml")


def load_scenario(path: Path) -> Scenario:
    """Read a scenario from a file. Raises BadSpec."""
    return _scenario(documents.read(path), path.stem, path.parent)


def parse_scenario(text: str, *, source: str = "scenario.toml") -> Scenario:
    """Read a scenario from a text; `source` is a file name with the format's suffix. Raises BadSpec."""
    return _scenario(documents.parse(text, source), Path(source).stem, Path(source).parent)


def _scenario(document: Document, name: str, folder: Path) -> Scenario:
    check_top(document)
    top = document.check((), {**dict.fromkeys(document.data, lambda value: None), **_TOP}, require=_NEEDED)
    own = {key: top[key] for key in DEFAULTS.keys() & top.keys()}
    if "program" in own:
        own["program"] = _program(document, own["program"], folder)
    topology = _topology(document, top)
    jobs = jobs_of(document, require=("name", "slots"))
    workers = {job.name: job.workers for job in jobs}
    return Scenario(
        name=name,
        summary=top["summary"],
        topology=topology,
        jobs=jobs,
        faults=tuple(read_fault(document, where, topology, workers) for where, _ in document.tables("fault")),
        checks=tuple(_check(document, where, [*workers]) for where, _ in document.tables("check")),
        settings=VirtualSettings(**{**DEFAULTS, **own}),
    )


def _program(document: Document, program: str, folder: Path) -> str:
    """Return the name of a program of p4src, or the path of a program file in the scenario's folder."""
    found = str(folder / program) if is_file(program) else program
    try:
        source_of(found, LANES[0])
    except (ProgramMismatch, FileNotFoundError) as error:
        raise document.error(("program",), f"program: {error}") from error
    return found


def _topology(document: Document, top: Mapping[str, Any]) -> Topology:
    try:
        found = find_topology(top["topology"])
    except BadSpec as error:
        raise document.error(("topology",), f"topology: {error}") from error
    common = (
        document.check(("link_defaults",), _PROPERTIES, what="link_defaults")
        if "link_defaults" in top
        else {}
    )
    return replace(found, links=tuple(replace(link, **common) for link in found.links))


def _check(document: Document, where: Where, jobs: list[str]) -> Check:
    found = document.check(where, _CHECK, what="check", require=("job",))
    if found["job"] not in jobs:
        known = documents.hint(found["job"], jobs)
        raise document.error((*where, "job"), f"unknown job {found['job']!r}; {known}")
    bounded = "metric" in found and ("least" in found or "most" in found)
    if bounded == ("fails" in found):
        raise document.error(where, "check: want the key metric with least or most, or the key fails")
    return Check(**found)
