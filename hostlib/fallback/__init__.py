"""The fallback server: sum packets without a slot, and replace lost results.

===================  ==================================================================================
`config`             settings, and jobs, read from JSON
`core`               the core, in C (``hostlib/_native/ina_fallback*.c``), and the theory of operation
`server`             the process: commands on standard input, and a socket
`beside`             the socket on a machine that also has workers
===================  ==================================================================================
"""

from hostlib.fallback.config import Count, FallbackJob, FallbackSettings
from hostlib.fallback.core import FallbackCore
from hostlib.fallback.server import FallbackServer

__all__ = ["Count", "FallbackCore", "FallbackJob", "FallbackServer", "FallbackSettings"]
