"""Networks as data, and the testbeds that run aggregation on them.

``spec`` and ``catalog`` describe topologies, ``jobfile`` the jobs; ``testbeds`` runs them; ``experiments``
runs many of them and tabulates the results.
"""

from bmv2_topos.catalog import leaf_spine, star, tree
from bmv2_topos.jobfile import JobEntry, JobFileError, Straggler, load_jobs, parse_jobs
from bmv2_topos.spec import Host, Link, Switch, Topology, TopologyError

__all__ = [
    "Host",
    "JobEntry",
    "JobFileError",
    "Link",
    "Straggler",
    "Switch",
    "Topology",
    "TopologyError",
    "leaf_spine",
    "load_jobs",
    "parse_jobs",
    "star",
    "tree",
]
