"""How a command fails: exit codes and the one line that says why.

===  =====================================================
0    done
1    the work failed
2    usage: an option or argument is wrong
3    the P4 program does not compile
4    internal error: please report it
===  =====================================================
"""

from __future__ import annotations

FAILED = 1
USAGE = 2
COMPILE = 3
INTERNAL = 4


class Failure(Exception):
    """A command cannot go on; `exit_code` becomes the process's."""

    def __init__(self, message: str, *, exit_code: int = FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)
