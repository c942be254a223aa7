"""What describing jobs, clusters, topologies and trees can fail with.

ControllerError
└── BadSpec     a job, cluster, topology, tree or option that makes no sense; the message says what would
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base of everything that the package `controller` raises."""


class BadSpec(ControllerError):
    """A job, profile, cluster, topology, tree or option that makes no sense."""
