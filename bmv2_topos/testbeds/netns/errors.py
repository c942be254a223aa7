"""All errors of a testbed of network namespaces.

NetnsError
├── MissingRequirement  this machine or user cannot have namespaces; names the missing requirement
│   └── NeedsRoot       this user cannot
├── Unsupported         a runner or a kind of switch cannot carry out a request; states why
├── BadName             a testbed or a node cannot be called that
├── NameTaken           a testbed, or something of its name, already exists
├── NoTestbed           no such testbed is up
└── StepFailed          a command failed, or a switch did not start; nothing of the testbed is left
"""

from __future__ import annotations


class NetnsError(Exception):
    """Base of everything that this package raises."""

    exit_code = 1


class MissingRequirement(NetnsError):
    """This machine or user cannot have network namespaces."""


class NeedsRoot(MissingRequirement):
    """Only root can have network namespaces, and this user is another one."""

    as_root = True
    """The command may be run again, as root."""


class Unsupported(NetnsError):
    """A runner or a kind of switch cannot carry out a request."""


class BadName(NetnsError):
    """A testbed or a node cannot be called that."""

    exit_code = 2


class NameTaken(NetnsError):
    """A testbed, or something of its name, already exists."""


class NoTestbed(NetnsError):
    """No such testbed is up."""


class StepFailed(NetnsError):
    """A command failed, or a switch did not start."""
