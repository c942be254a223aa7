"""Random schedules of everything that can go wrong at once, and the invariants that must hold all the same.

A *schedule* is drawn from one integer, its seed: jobs, what they sum, what the links do to packets, and
events such as restarts and region changes. It runs in virtual time on a *bed*, a network with jobs on it that
32 seeds share. After its last event comes a *calm*, in which links lose, damage and hold back nothing.
Real are the switch programs, compiled, in the engine; the controller's plans and rows; the workers' windows
and the fallback servers' cores, in C and in numpy. Simulated are the clock and the links.

After every schedule these must hold:

==============  =====================================================================================
exactness       every rank was handed the sum (int32), or what the documented bound allows (float32), all
                of them the same; overflows and non-finite values were reported to all ranks
progress        every collective has ended, within a bounded virtual time
recovery        each that was under way when the calm began, or was called later, has ended within a bounded
                number of round trips for each packet still to come, plus the longest time-out twice
isolation       forged and damaged packets changed nothing, each was counted once by its reason, and no
                packet left a switch by a port that is not its job's
counters        every packet was counted once; no counter shows what cannot have happened
==============  =====================================================================================
"""

from bmv2_topos.soak.campaign import Failure, ProcessDied, Tally, describe, replay, soak
from bmv2_topos.soak.checks import KINDS, missing
from bmv2_topos.soak.draw import draw_schedule
from bmv2_topos.soak.schedule import SoakSchedule

__all__ = [
    "KINDS",
    "Failure",
    "ProcessDied",
    "SoakSchedule",
    "Tally",
    "describe",
    "draw_schedule",
    "missing",
    "replay",
    "soak",
]
