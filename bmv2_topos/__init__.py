"""Networks as data, and the testbeds that run aggregation on them.

``spec`` and ``catalog`` describe topologies, ``topofile`` reads and writes them, ``jobfile`` the jobs;
``testbeds`` runs them; ``experiments`` runs many of them and tabulates the results.
"""

from bmv2_topos.catalog import CATALOG, dumbbell, fat_tree, leaf_spine, named, star, tree
from bmv2_topos.jobfile import JobEntry, JobFileError, Straggler, load_jobs, parse_jobs
from bmv2_topos.places import place
from bmv2_topos.spec import Host, Link, Switch, Topology, TopologyError
from bmv2_topos.topofile import (
    TopologyFileError,
    dump_topology,
    find_topology,
    load_topology,
    parse_topology,
)

__all__ = [
    "CATALOG",
    "Host",
    "JobEntry",
    "JobFileError",
    "Link",
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
