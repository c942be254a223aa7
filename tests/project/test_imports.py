"""Who may import what: the map of docs/explanations/architecture.md as a table, and what holds for all of it.

Four rules, each tried by a broken example at the end:

1. the product imports nothing of what is not installed;
2. a room imports what its row of `MAY_IMPORT` lists, and its own modules;
3. protocol cores do no I/O;
4. rooms do not import each other in a circle, nor do the C files of one folder call each other in one.

A *room* is a package folder without the folders below it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Packages, each with those that it may import; ranks, so that arrows between packages only run down.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "p4src": (),
    "softswitch": ("p4src",),
    "hostlib": (),
    "controller": ("p4src",),
    "bmv2_topos": ("p4src", "softswitch", "hostlib", "controller"),
    "ina": ("p4src", "softswitch", "hostlib", "controller", "bmv2_topos"),
}
PRODUCT = tuple(PACKAGES)
NOT_INSTALLED = ("benchmarks", "docs", "examples", "tests")

# Ways into a package from other packages. They meet on the wire, and here.
SWITCH = ("softswitch", "softswitch.stf")
HOST = (
    *("hostlib/", "hostlib.fallback", "hostlib.interleave", "hostlib.launch/"),
    *("hostlib.io.interfaces", "hostlib.meet", "hostlib.meet.connections", "hostlib.wire.encodings"),
)
CONTROLLER = (
    *("controller/", "controller.vocabulary/", "controller.switches/", "controller.policies.memory/"),
    "controller.p4runtime_shim/",
)
# Programs as data, a pipeline to run one and its table entries.
PIPELINES = (*("softswitch.compiler.ir", "softswitch.engine.pipeline", "softswitch.engine.entries"),)
# Cables between switches in virtual time.
CABLES = ("softswitch.engine.cables",)
PACKETS = ("hostlib.wire", "hostlib.wire.tree")

# Room: what it may import. "a.b" is that module or the package's root, "a.b/" also the other modules of the
# room, "a.b/*" also all rooms below. A row holds for the rooms below it that have none of their own.
MAY_IMPORT: Mapping[str, tuple[str, ...]] = {
    # A leaf that both ends of P4Runtime share.
    "p4src": (),
    # The switch knows P4, and nothing of aggregation.
    "softswitch": ("softswitch/*",),
    "softswitch.compiler": ("p4src.messages", "softswitch.compiler/*"),
    "softswitch.engine": ("softswitch.compiler/*", "softswitch.engine/*"),
    "softswitch.gnmi": ("p4src.messages.gnmi", "p4src.messages", "softswitch.engine/"),
    "softswitch.bfrt": (
        *("p4src.messages", "p4src.messages.bfruntime"),
        *("softswitch.bfrt/", "softswitch.compiler/*", "softswitch.engine/", "softswitch.p4runtime/"),
    ),
    "softswitch.p4runtime": (
        *("p4src.messages/", "softswitch.compiler/*", "softswitch.engine/", "softswitch.gnmi"),
    ),
    # The host library knows the wire.
    "hostlib": ("hostlib/*",),
    "hostlib.wire": ("hostlib.errors", "hostlib.version"),
    "hostlib.core": ("hostlib.errors", "hostlib.wire/"),
    "hostlib._native": ("hostlib.errors", "hostlib.wire", "hostlib.core/"),
    "hostlib.io": ("hostlib/", "hostlib._native/", "hostlib.core/"),
    "hostlib.meet": ("hostlib/", "hostlib.core"),
    "hostlib.collectives": (
        *("hostlib/", "hostlib._native", "hostlib.core/", "hostlib.io/", "hostlib.meet/", "hostlib.wire/"),
    ),
    "hostlib.launch": ("hostlib/", "hostlib.io/", "hostlib.meet/"),
    "hostlib.fallback": ("hostlib/", "hostlib._native/", "hostlib.io/", "hostlib.meet", "hostlib.wire/"),
    "hostlib.interleave": ("hostlib/", "hostlib.meet/"),
    "hostlib.torch": ("hostlib/", "hostlib.collectives/", "hostlib.launch/", "hostlib.wire/"),
    "hostlib.horovod": (
        *("hostlib/", "hostlib.launch/", "hostlib.meet/", "hostlib.torch/", "hostlib.wire/"),
    ),
    "hostlib.demos": ("hostlib", "hostlib.interleave"),
    # What rooms share: jobs, clusters, topologies, and their files.
    "controller.vocabulary": (),
    # The controller knows P4Runtime. Schedulers stand on the grouper, the simulator and live jobs on them.
    "controller": (*CONTROLLER, "p4src.messages"),
    "controller.switches": (
        *("controller.errors", "controller.vocabulary/", "controller.policies.memory/"),
        *("p4src.messages/", "p4src.programs"),
    ),
    "controller.policies.memory": (
        "controller.errors",
        "controller.vocabulary/",
        "controller.policies.placement.flows",
    ),
    "controller.policies.routing": (
        "controller.errors",
        "controller.vocabulary/",
        "controller.policies.placement/",
    ),
    "controller.policies.placement": ("controller.errors", "controller._native", "controller.vocabulary/"),
    "controller.p4runtime_shim": (
        *("controller.errors", "controller.switches.programs", "controller.switches.session"),
        *("controller.switches.target", "p4src.messages", "p4src.messages.gnmi"),
    ),
    "controller._native": ("controller.errors",),
    "controller.policies.grouping": ("controller.errors", "controller._native"),
    "controller.policies.scheduling": (
        *("controller.errors", "controller.figures", "controller.vocabulary/", "controller._native"),
        *("controller.policies.grouping/", "controller.policies.scheduling/*"),
        *("controller.policies.family", "controller.policies.joint"),
    ),
    # All policies by name; one decision for GPUs, servers and trees.
    "controller.policies": (
        *("controller.vocabulary/", "controller.errors", "controller.plugins", "controller.policies/*"),
    ),
    # What decides: scheduler, placement, tree and memory together.
    "controller.core": (*("controller.vocabulary/", "controller.errors", "controller.policies/*"),),
    # Virtual time around that: traces, metrics, records, plots.
    "controller.simulator": (
        *("controller.errors", "controller.figures", "controller.interrupts", "controller.plugins"),
        "controller.vocabulary/",
        *("controller.core/", "controller.policies/*"),
        "controller.simulator/*",
    ),
    # Speeds of jobs that contend for a cluster's network.
    "controller.simulator.network": (
        *("controller.vocabulary/", "controller.errors", "controller.core/", "controller.policies/*"),
        *("controller.simulator/", "controller.figures"),
    ),
    # All of it in virtual time: the cores themselves, under the controller.
    "bmv2_topos": (
        *("bmv2_topos/*", *CONTROLLER, *SWITCH, *PIPELINES, *CABLES),
        *("controller.core.allocator", "controller.policies/", "controller.policies.placement/"),
        *("hostlib/", "hostlib._native", "hostlib.core/", "hostlib.fallback/", "hostlib.wire/"),
        *("hostlib.collectives", "hostlib.io/"),
    ),
    # Testbeds of network namespaces, on which `ina.run` runs jobs.
    "bmv2_topos.testbeds.netns": (
        *("bmv2_topos/*", *CONTROLLER, "hostlib.launch.command_line", "softswitch", "p4src.programs"),
    ),
    "bmv2_topos.testbeds.mininet": ("bmv2_topos/*", *CONTROLLER, "hostlib.launch.command_line"),
    # One BMv2 whose ports are files, and scripts on it.
    "bmv2_topos.testbeds.bmv2": (
        *("bmv2_topos/*", *CONTROLLER, *SWITCH, *PIPELINES, "p4src.messages", "softswitch.p4runtime/"),
    ),
    "bmv2_topos.scenarios": ("bmv2_topos/*", *CONTROLLER, "p4src.programs"),
    # These compose the packages.
    "ina": ("ina.cli", "hostlib"),
    # The controller as a service: jobs on the hosts of a testbed.
    "ina.run": (
        *(*CONTROLLER, *HOST, "controller.core/", "controller.policies/*"),
        *(
            "ina.errors",
            "ina.faults",
            "ina.quickly",
            "ina.run.launch/",
            "ina.run.fallback/",
            "ina.run.switches/",
        ),
        *("bmv2_topos.testbeds.netns/", "bmv2_topos.faults", "bmv2_topos.scenarios/"),
    ),
    # The service over HTTP: it alone knows status codes, and the daemon nothing of it.
    "ina.api": (
        *("controller.vocabulary/", "ina.errors", "ina.run.records"),
        *(
            "ina.run",
            "ina.run.daemon",
            "ina.run.quotas",
            "ina.run.tokens",
            "ina.run.views",
            "softswitch",
        ),
    ),
    # What asks machines, and a job on them.
    "ina.doctor": (
        *(*CONTROLLER, *HOST, "ina.errors", "ina.run.launch/", "ina.run.live", "ina.run.switches/"),
        "bmv2_topos.testbeds.netns/",
    ),
    # Switches that serve jobs; fallback servers; the workers of jobs.
    "ina.run.switches": (
        *(*CONTROLLER, *SWITCH, *HOST, "bmv2_topos.impairments", "p4src.programs"),
        *("bmv2_topos.testbeds.netns/", "bmv2_topos.testbeds.mininet"),
        *("ina.errors", "ina.run.fallback/", "ina.run.launch/"),
    ),
    "ina.run.fallback": (
        *CONTROLLER,
        *HOST,
        "bmv2_topos.testbeds.netns/",
        "ina.errors",
        "ina.faults",
        "ina.run.launch/",
    ),
    "ina.run.launch": (
        *(*CONTROLLER, *HOST, "controller.core/", "controller.policies.memory/"),
        *("hostlib.wire.tree", "bmv2_topos.testbeds.netns/", "ina.errors", "ina.faults", "ina.quickly"),
    ),
    "ina.bench": (
        *(*CONTROLLER, "controller.policies.grouping/", "controller.policies.scheduling.synergy/"),
        *(*SWITCH, *PIPELINES, *HOST, *PACKETS, "p4src.messages", "softswitch.engine.build"),
        *("softswitch.engine.compiled", "softswitch.engine.switch", "softswitch.engine.tofino"),
        *("bmv2_topos.testbeds.netns/", "bmv2_topos.testbeds.virtual.target"),
    ),
    "ina.cli": (
        *("controller/*", "ina/*", *SWITCH, *HOST, "hostlib.demos/"),
        "hostlib.wire.lua_dissector",
        *("bmv2_topos.draw", "bmv2_topos.harness/", "bmv2_topos.plots", "bmv2_topos.soak"),
        *("bmv2_topos.testbeds.virtual", "bmv2_topos.trace"),
        *("bmv2_topos.testbeds.netns/", "bmv2_topos.testbeds.mininet", "bmv2_topos.testbeds.bmv2"),
        *("bmv2_topos.scenarios", "p4src.programs"),
    ),
}

# Packages and modules that get bytes, events and the time, and return what is to be done.
CORES = (
    *("hostlib.core", "hostlib.fallback.config", "hostlib.fallback.core", "hostlib.interleave.turn_order"),
    *(
        "controller.policies",
        "controller.core",
    ),
)
IO = {"asyncio", "multiprocessing", "select", "selectors", "socket", "subprocess", "threading", "time"}
IO |= {"grpc", "sqlite3"}

# Distributions whose packages have other names, or that bring others.
DISTRIBUTIONS = {"google": "protobuf", "grpc": "grpcio", "p4": "p4runtime", "yaml": "pyyaml"}
DISTRIBUTIONS |= {"h11": "uvicorn", "pydantic": "fastapi", "starlette": "fastapi"}

C_FOLDERS = ("softswitch/engine/runtime", "hostlib/_native")


@cache
def modules() -> Mapping[str, Path]:
    """Every module of the product by its name; a package is its ``__init__.py``, or else its folder."""
    found: dict[str, Path] = {}
    for path in (path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
        for end in range(1, len(parts)):
            found.setdefault(".".join(parts[:end]), path.parent)
    return found


@cache
def is_room(module: str) -> bool:
    return module in modules() and modules()[module].name in ("__init__.py", module.rpartition(".")[2])


def room_of(module: str) -> str:
    return module if is_room(module) else module.rpartition(".")[0]


@cache
def imports(module: str) -> Sequence[str]:
    """What the file of a module imports, wherever in it: modules, not the names in them."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[str]:
    path = modules()[module]
    for node in ast.walk(ast.parse(path.read_text())) if path.suffix else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = room_of(module).split(".")
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                yield name if (name := f"{source}.{alias.name}") in modules() else source


def row_of(room: str) -> str:
    """The row of the table that holds for a room: that of the nearest room above that has one."""
    while room not in MAY_IMPORT:
        room = room.rpartition(".")[0]
    return room


def covers(entry: str, module: str) -> bool:
    match entry.partition("/"):
        case (room, "/", "*"):
            return module == room or module.startswith(f"{room}.")
        case (room, "/", ""):
            return room_of(module) == room
        case _:
            return module == entry


def complaint(module: str, imported: str) -> str | None:
    """Say which rule an import breaks, None if it breaks none."""
    top = imported.split(".")[0]
    if top in NOT_INSTALLED:
        return f"{module} imports {imported}: the product imports nothing of {', '.join(NOT_INSTALLED)}"
    if top in IO and any(module == core or module.startswith(f"{core}.") for core in CORES):
        return f"{module} imports {imported}: protocol cores do no I/O"
    if top not in PRODUCT or room_of(imported) == room_of(module):
        return None
    package = module.split(".")[0]
    if top != package and top not in PACKAGES[package]:
        below = ", ".join(PACKAGES[package]) or "no package"
        return f"{module} imports {imported}: package {package} may import {below}"
    row = row_of(room_of(module))
    if not any(covers(entry, imported) for entry in MAY_IMPORT[row]):
        return f"{module} imports {imported}: {row} may import {', '.join(MAY_IMPORT[row]) or 'nothing'}"
    return None


@cache
def node(module: str) -> str:
    """What a module counts as where circles are looked for: its room, or itself if its room has rooms below.

    So errors and models, which all rooms below use, and the modules that use all of these are no circle.
    """
    room = room_of(module)
    has_below = any(is_room(other) and other.startswith(f"{room}.") for other in modules())
    return module if has_below else room


def circle(edges: Iterable[tuple[str, str]]) -> list[str] | None:
    """A circle of these arrows, None if there is none."""
    graph: dict[str, set[str]] = {}
    for start, end in edges:
        if start != end:
            graph.setdefault(start, set()).add(end)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return None


def calls(files: Mapping[str, str]) -> set[tuple[str, str]]:
    """Which C file uses a function that which other one defines, given their text."""
    comments_and_strings = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.S)
    code = {name: comments_and_strings.sub("", text) for name, text in files.items()}
    definition = re.compile(r"^(?!static)[A-Za-z_][\w\s*]*?\b(\w+)\([^;{]*?\)\s*\n\{", re.M)
    home = {match[1]: name for name, text in code.items() for match in definition.finditer(text)}
    return {
        (name, home[word])
        for name, text in code.items()
        for word in set(re.findall(r"\b\w+\b", text)) & home.keys()
    }


# --------------------------------------------------------------------------- the rules


def test_modules_import_only_what_the_map_allows() -> None:
    arrows = ((module, imported) for module in sorted(modules()) for imported in imports(module))
    found = [said for module, imported in arrows if (said := complaint(module, imported))]
    assert not found, "\n".join(found)


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    known = modules()
    arrows = ((module, name) for module in known for name in imports(module) if name in known)
    assert circle((node(module), node(name)) for module, name in arrows) is None


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    arrows = [(package, other) for package, others in PACKAGES.items() for other in others]
    assert circle(arrows) is None
    assert {*arrows} >= {
        (package, other)
        for module in modules()
        for name in imports(module)
        if (package := module.split(".")[0]) != (other := name.split(".")[0]) and other in PRODUCT
    }


def test_the_vocabulary_imports_the_standard_library_only() -> None:
    found = {
        name
        for module in modules()
        if module.startswith("controller.vocabulary")
        for name in imports(module)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not covers("controller.vocabulary/*", name)
    }
    assert found == {"yaml"}, "which is optional"


def test_every_package_that_the_product_imports_is_a_dependency() -> None:
    """`ina run` imported one that only newer releases of other dependencies bring."""
    dependencies = (ROOT / "pyproject.toml").read_text()
    imported = {name.partition(".")[0] for module in modules() for name in imports(module)}
    foreign = imported - {*PRODUCT, *sys.stdlib_module_names, "mininet"}  # Mininet is a system's package
    assert [each for each in foreign if f'"{DISTRIBUTIONS.get(each, each)}' not in dependencies] == []


@pytest.mark.parametrize("folder", C_FOLDERS)
def test_c_files_do_not_call_each_other_in_a_circle(folder: str) -> None:
    arrows = calls({path.name: path.read_text() for path in (ROOT / folder).glob("*.c")})
    assert len({name for arrow in arrows for name in arrow}) > 5, "the functions are found"
    assert circle(arrows) is None


def test_every_folder_of_python_is_the_products_or_not_installed() -> None:
    unknown = {
        path.parent.name
        for path in ROOT.glob("*/*.py")
        if not path.parent.name.startswith(".") and path.parent.name not in ("build", "dist")
    }
    assert unknown <= {*PRODUCT, *NOT_INSTALLED}


# --------------------------------------------------------------------------- the rules are tried


@pytest.mark.parametrize(
    ("module", "imported", "rule"),
    [
        (
            "ina.cli.interleave",
            "benchmarks.schedulers.interleave",
            "the product imports nothing of benchmarks",
        ),
        (
            "ina.bench.baselines",
            "examples.digits",
            "the product imports nothing of benchmarks, docs, examples",
        ),
        ("hostlib.wire", "tests.p4.bed", "the product imports nothing of benchmarks, docs, examples, tests"),
        ("p4src.programs", "benchmarks", "the product imports nothing of"),
        ("hostlib.core.window", "socket", "protocol cores do no I/O"),
        ("hostlib.fallback.core", "time", "protocol cores do no I/O"),
        ("hostlib.interleave.turn_order", "threading", "protocol cores do no I/O"),
        ("controller.core.core", "subprocess", "protocol cores do no I/O"),
        ("controller.core.core", "sqlite3", "protocol cores do no I/O"),
        ("controller.core.events", "grpc", "protocol cores do no I/O"),
        ("p4src.messages", "softswitch", "package p4src may import no package"),
        ("softswitch.engine.switch", "controller.switches.model", "package softswitch may import p4src"),
        ("softswitch.p4runtime.state", "hostlib.wire", "package softswitch may import p4src"),
        ("softswitch.daemon", "bmv2_topos", "package softswitch may import"),
        ("softswitch.compiler.lowering.unit", "softswitch.engine.build", "softswitch.compiler may import"),
        ("hostlib.collectives.communicator", "controller", "package hostlib may import no package"),
        ("hostlib.io.link", "softswitch", "package hostlib may import no package"),
        ("hostlib.core.window", "hostlib._native", "hostlib.core may import"),
        ("hostlib.collectives.engine", "hostlib.fallback", "hostlib.collectives may import"),
        ("hostlib.demos.digits", "hostlib.core.window", "hostlib.demos may import"),
        ("controller.switches.session", "softswitch", "package controller may import p4src"),
        ("controller.switches.layout", "hostlib.wire.tree", "package controller may import p4src"),
        ("controller.core.core", "bmv2_topos.impairments", "package controller may import p4src"),
        ("controller.vocabulary.topology", "controller.errors", "controller.vocabulary may import nothing"),
        (
            "controller.switches.session",
            "controller.policies.scheduling.policy",
            "controller.switches may import",
        ),
        ("controller.switches.session", "controller.p4runtime_shim.target", "controller.switches may import"),
        (
            "controller.policies.routing.grid",
            "controller.switches.layout",
            "controller.policies.routing may import",
        ),
        ("controller.switches.session", "ina.cli.output", "package controller may import p4src"),
        (
            "controller.policies.memory.regions",
            "controller.switches.session",
            "controller.policies.memory may import",
        ),
        (
            "controller.p4runtime_shim.client",
            "controller.switches.model",
            "controller.p4runtime_shim may import",
        ),
        (
            "controller.policies.grouping.rounds",
            "controller.policies.scheduling.errors",
            "controller.policies.grouping may import",
        ),
        (
            "controller.policies.scheduling.muri",
            "controller.simulator.engine",
            "controller.policies.scheduling may import",
        ),
        (
            "controller.policies.scheduling.muri",
            "controller.core.allocator",
            "controller.policies.scheduling may import",
        ),
        ("controller.policies.registry", "controller.simulator.engine", "controller.policies may import"),
        ("controller.policies.registry", "controller.core.allocator", "controller.policies may import"),
        ("controller.core.allocator", "controller.simulator.engine", "controller.core may import"),
        ("controller.core.allocator", "controller.switches.session", "controller.core may import"),
        ("controller.core.allocator", "time", "protocol cores do no I/O"),
        ("controller.simulator.engine", "hostlib", "package controller may import p4src"),
        ("controller.core.core", "ina.run.switches.fabric", "package controller may import p4src"),
        ("ina.run.switches.fabric", "ina.cli.errors", "ina.run.switches may import"),
        ("ina.run.switches.fabric", "softswitch.engine.switch", "ina.run.switches may import"),
        ("ina.run.launch.job_run", "hostlib.meet.rendezvous", "ina.run.launch may import"),
        ("ina.run.launch.executor", "ina.run.ledger", "ina.run.launch may import"),
        ("ina.run.fallback.process", "ina.run.switches.fabric", "ina.run.fallback may import"),
        ("ina.bench.pipeline", "ina.cli.fallback", "ina.bench may import"),
        ("ina.run.daemon", "ina.api", "ina.run may import"),
        ("ina.api.app", "ina.run.ledger", "ina.api may import"),
        ("ina.api.app", "ina.run.store", "ina.api may import"),
        ("ina.cli.run", "hostlib.core.window", "ina.cli may import"),
        ("ina.cli.sim", "bmv2_topos.soak.run", "ina.cli may import"),
        ("bmv2_topos.testbeds.virtual.testbed", "ina.cli.run", "package bmv2_topos may import p4src"),
        ("bmv2_topos.soak.run", "softswitch.engine.switch", "bmv2_topos may import"),
    ],
)
def test_an_import_against_a_rule_is_named_with_the_rule(module: str, imported: str, rule: str) -> None:
    assert (said := complaint(module, imported)) is not None
    assert said.startswith(f"{module} imports {imported}: {rule}")


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("controller.switches.session", "p4src.messages"),
        ("ina.cli.run", "hostlib"),
        ("ina.run.switches.fabric", "softswitch"),
        ("ina.run.switches.topology", "bmv2_topos.impairments"),
        ("bmv2_topos.testbeds.virtual.testbed", "controller"),
        ("hostlib.core.window", "hostlib.core.state"),
        ("hostlib.collectives.engine", "threading"),
    ],
)
def test_an_import_that_the_map_shows_is_allowed(module: str, imported: str) -> None:
    assert complaint(module, imported) is None


def test_a_circle_of_rooms_is_found() -> None:
    straight = [("cli", "grouping"), ("grouping", "errors"), ("scheduling", "grouping")]
    assert circle(straight) is None
    assert {*(circle([*straight, ("grouping", "scheduling")]) or ())} == {"grouping", "scheduling"}


def test_modules_that_rooms_below_use_are_no_circle_with_them() -> None:
    assert node("hostlib.errors") == "hostlib.errors"
    assert node("hostlib.core.window") == node("hostlib.core.state") == "hostlib.core"


def test_a_circle_of_c_files_is_found() -> None:
    files = {
        "low.c": "int low(int x)\n{\n    return x;  /* high() */\n}\n",
        "high.c": 'int high(int x)\n{\n    puts("other()");\n    return low(x);\n}\n',
    }
    assert circle(calls(files)) is None
    files["low.c"] += "void again(void)\n{\n    high(1);\n}\n"
    assert {*(circle(calls(files)) or ())} == {"low.c", "high.c"}
