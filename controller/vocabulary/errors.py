"""Errors of descriptions of jobs, clusters, topologies and trees.

ControllerError
└── BadSpec     an invalid job, cluster, topology, tree or option; the message says what would be valid
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base class of all errors of the package `controller`."""


class BadSpec(ControllerError):
    """An invalid job, profile, cluster, topology, tree or option."""
