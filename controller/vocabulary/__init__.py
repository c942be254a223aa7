"""Jobs, clusters, topologies and trees as plain data, and the files that they come in: what rooms share."""

from controller.vocabulary.catalog import CATALOG, dumbbell, fat_tree, leaf_spine, named, star, tree
from controller.vocabulary.jobfile import JobEntry, JobFileError, Straggler, load_jobs, parse_jobs
from controller.vocabulary.places import place
from controller.vocabulary.slots import Mode, Region
from controller.vocabulary.topofile import (
    TopologyFileError,
    dump_topology,
    find_topology,
    load_topology,
    parse_topology,
)
from controller.vocabulary.topology import Host, Link, Switch, Topology, TopologyError

__all__ = [
    "CATALOG",
    "Host",
    "JobEntry",
    "JobFileError",
    "Link",
    "Mode",
    "Region",
    "Straggler",
    "Switch",
    "Topology",
    "TopologyError",
    "TopologyFileError",
    "dumbbell",
    "dump_topology",
    "fat_tree",
    "find_topology",
    "leaf_spine",
    "load_jobs",
    "load_topology",
    "named",
    "parse_jobs",
    "parse_topology",
    "place",
    "star",
    "tree",
]
