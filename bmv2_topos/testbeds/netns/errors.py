"""All errors of a testbed of network namespaces.

NetnsError
├── MissingRequirement  this machine or user cannot have namespaces; names the missing requirement
│   └── NeedsRoot       this user is not root
├── Unsupported         a runner or a kind of switch cannot carry out a request; states why
├── BadName             the name of a testbed or a node is invalid
├── NameTaken           a testbed of this name, or a part of one, already exists
├── NoTestbed           no such testbed is up
└── StepFailed          a command failed, or a switch did not start; nothing of the testbed is left
"""

from __future__ import annotations


class NetnsError(Exception):
    """Base class of the errors of this package."""

    exit_code = 1


class MissingRequirement(NetnsError):
    """This machine or user cannot have network namespaces."""


class NeedsRoot(MissingRequirement):
    """Network namespaces need root, and this user is not root."""

    as_root = True
    """True: the command may succeed as root, so the command line says how to run it again."""


class Unsupported(NetnsError):
    """A runner or a kind of switch cannot carry out a request."""


class BadName(NetnsError):
    """The name of a testbed or a node is invalid."""

    exit_code = 2


class NameTaken(NetnsError):
    """A testbed of this name, or a part of one, already exists."""


class NoTestbed(NetnsError):
    """No such testbed is up."""


class StepFailed(NetnsError):
    """A command failed, or a switch did not start."""
