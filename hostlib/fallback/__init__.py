"""The fallback server: adds up what finds no room in the switches, and answers what has been lost.

===================  ==================================================================================
`config`             settings, and the jobs as they come in JSON
`core`               the core, in C (``hostlib/_native/ina_fallback*.c``), and the theory of operation
`server`             the process: commands on standard input, and a socket
`beside`             the socket where the machine has workers, too
===================  ==================================================================================
"""

from hostlib.fallback.config import Count, FallbackJob, FallbackSettings
from hostlib.fallback.core import FallbackCore
from hostlib.fallback.server import FallbackServer

__all__ = ["Count", "FallbackCore", "FallbackJob", "FallbackServer", "FallbackSettings"]
