"""Several switches in virtual time, and the cables between their memory ports.

A port's impairments are its link: rate, queue and loss are those of the port that sends. A cable adds its
delay, for what leaves one switch has to enter another at the right time. Nothing that leaves a switch now can
touch another one sooner than the shortest delay of a cable. So all switches advance by steps of at most that,
one after the other, and what they sent each other is exchanged in between: no packet comes too late, to the
microsecond. Of what enters at the same microsecond, first what was sent in an earlier step, then what left an
earlier switch of the list by an earlier port.

Ports without a cable are *ends*: hosts are there, which send and receive. Nothing else lets frames enter.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from softswitch.engine.cabling import Cable, Cabling, End, Survives
from softswitch.engine.native import NativeEngine
from softswitch.engine.native_cables import NativeCabling
from softswitch.engine.ports import MemoryPort, SwitchError
from softswitch.engine.python_cables import PythonCabling
from softswitch.engine.switch import Switch


def connect(
    switches: Sequence[Switch], cables: Sequence[Cable], ends: Sequence[End], survives: Survives
) -> Cabling:
    """Connect switches that stand at time 0.

    Args:
        switches: The switches, all of one engine, with memory ports that are not the CPU's.
        cables: The cables, those of an earlier switch first.
        ends: The ports at which hosts are.
        survives: Asked where `Cabling.ask` wants it.

    Raises:
        SwitchError: a switch has a port of another kind, or the cables are in another order.
    """
    for number, switch in enumerate(switches):
        for port, spec in switch.ports.items():
            if not isinstance(spec, MemoryPort) or spec.cpu:
                raise SwitchError(f"port {port} of switch {number} is not a memory port for frames")
    if any(after.source < before.source for before, after in itertools.pairwise(cables)):
        raise SwitchError("cables must come in the order of the switches that they lead from")
    engines = [switch.engine for switch in switches]
    natives = [engine for engine in engines if isinstance(engine, NativeEngine)]
    if len(natives) == len(engines):
        return NativeCabling(natives, cables, ends, survives)
    return PythonCabling(switches, cables, ends, survives)
