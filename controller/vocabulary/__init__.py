"""Jobs, clusters, topologies and trees as plain data, and their files: shared by all other packages.

This package imports only the standard library.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.vocabulary import documents, fabrics, shapes
    from controller.vocabulary.catalog import (
        CATALOG,
        Cluster,
        dumbbell,
        fat_tree,
        leaf_spine,
        named,
        star,
        tree,
    )
    from controller.vocabulary.errors import BadSpec, ControllerError
    from controller.vocabulary.files import (
        cluster_of,
        dump_topology,
        find_topology,
        jobs_of,
        parse_jobs,
        parse_topology,
        read_jobs,
        read_topology,
        topology_of,
        unused,
        unusual,
        write_jobs,
    )
    from controller.vocabulary.job import (
        CONGESTION,
        ENCODINGS,
        MODES,
        Encoding,
        Job,
        Mode,
        Region,
        Straggler,
        Tree,
        float32_bytes,
    )
    from controller.vocabulary.topology import Link, Role, Server, Switch, Topology, place

__all__ = [
    "CATALOG",
    "CONGESTION",
    "ENCODINGS",
    "MODES",
    "BadSpec",
    "Cluster",
    "ControllerError",
    "Encoding",
    "Job",
    "Link",
    "Mode",
    "Region",
    "Role",
    "Server",
    "Straggler",
    "Switch",
    "Topology",
    "Tree",
    "cluster_of",
    "documents",
    "dumbbell",
    "dump_topology",
    "fabrics",
    "fat_tree",
    "find_topology",
    "float32_bytes",
    "jobs_of",
    "leaf_spine",
    "named",
    "parse_jobs",
    "parse_topology",
    "place",
    "read_jobs",
    "read_topology",
    "shapes",
    "star",
    "topology_of",
    "tree",
    "unused",
    "unusual",
    "write_jobs",
]

_MODULES = ("errors", "job", "topology", "catalog", "files")
"""Modules in which `__getattr__` looks for a public name. Modules that import quickly come first: the
import of `files` takes as long as the imports of all others together."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: importing all names takes longer than many commands run."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(importlib.import_module(f"controller.vocabulary.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
