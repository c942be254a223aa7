"""Random schedules of jobs and simultaneous faults, and the invariants that must hold in all of them.

A *schedule* is drawn from one integer, its seed: jobs, what they sum, what the links do to packets, and
events such as restarts and region changes. A schedule runs in virtual time on a *testbed*, which is a network
with jobs. Each testbed serves 32 consecutive seeds. After the schedule's last event comes a *calm*, in which
links deliver every packet, undamaged and in order. A run uses the real switch programs, compiled, in the real
engine; the controller's real plans and rows; and the real cores of workers and fallback servers, in C and in
NumPy. Only the clock and the links are simulated.

After every schedule these must hold:

==============  =====================================================================================
exactness       every rank got the sum (int32) or a value within the documented bound (float32), the same
                at all ranks; overflows and non-finite values were reported to all ranks
progress        every collective has ended, within a bounded virtual time
recovery        each collective that was under way when the calm began, or was called later, has ended within
                four round trips for each missing packet, plus 1.75 times the longest time-out
isolation       forged and damaged packets changed nothing, each was counted once by its reason, and no
                packet left a switch by a port that is not its job's
counters        every packet was counted once; no counter shows an impossible value
==============  =====================================================================================
"""

from bmv2_topos.soak.campaign import ProcessDied, describe, replay, soak
from bmv2_topos.soak.checks import KINDS, missing
from bmv2_topos.soak.draw import draw_schedule
from bmv2_topos.soak.run import Failure, Tally
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
