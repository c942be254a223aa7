"""The fallback server: adds up what finds no room in the switches, and answers what has been lost.

===================  ==================================================================================
`config`             settings, and the jobs as they come in JSON
`core`               the interface, the theory of operation, and the choice between the two cores
`numpy_core`         the core in numpy: what it sends; `numpy_intake`: what it makes of what comes in;
                     `numpy_store`: what it keeps; `numpy_packets`: bytes
`native_core`        the same in C (``hostlib/_native/ina_fallback*.c``)
`server`, `link`     the process: commands on standard input, and a socket
===================  ==================================================================================
"""

from hostlib.fallback.config import Count, FallbackJob, FallbackSettings
from hostlib.fallback.core import FallbackCore, choose_core
from hostlib.fallback.server import FallbackServer

__all__ = ["Count", "FallbackCore", "FallbackJob", "FallbackServer", "FallbackSettings", "choose_core"]
