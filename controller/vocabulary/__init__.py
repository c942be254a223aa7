"""Jobs, clusters, topologies and trees as plain data, and the files that they come in: what rooms share.

It imports nothing but the standard library.
"""

from controller.vocabulary import documents, fabrics, shapes
from controller.vocabulary.catalog import CATALOG, dumbbell, fat_tree, leaf_spine, named, star, tree
from controller.vocabulary.cluster import Cluster
from controller.vocabulary.errors import BadSpec, ControllerError
from controller.vocabulary.job import Job, Straggler, float32_bytes
from controller.vocabulary.jobfile import load_jobs, parse_jobs
from controller.vocabulary.places import place
from controller.vocabulary.slots import CONGESTION, ENCODINGS, MODES, Congestion, Encoding, Mode, Region
from controller.vocabulary.topofile import dump_topology, find_topology, load_topology, parse_topology
from controller.vocabulary.topology import Link, Role, Server, Switch, Topology
from controller.vocabulary.trees import Tree

__all__ = [
    "CATALOG",
    "CONGESTION",
    "ENCODINGS",
    "MODES",
    "BadSpec",
    "Cluster",
    "Congestion",
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
    "documents",
    "dumbbell",
    "dump_topology",
    "fabrics",
    "fat_tree",
    "find_topology",
    "float32_bytes",
    "leaf_spine",
    "load_jobs",
    "load_topology",
    "named",
    "parse_jobs",
    "parse_topology",
    "place",
    "shapes",
    "star",
    "tree",
]
