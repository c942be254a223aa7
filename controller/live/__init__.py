"""Real jobs under the policies of `controller.scheduling`: what the simulator asks them, asked for real.

- `core`: takes in what happens (submissions, progress, ends), asks the policy, and says which processes to
  start and stop; without I/O and without a clock of its own;
- `job`: a job whose progress is reported instead of foreseen.

`ina schedule live` is the shell around it, which starts the processes.
"""

from controller.live.core import Entry, LiveController, Run, Start, Stop
from controller.live.job import LiveJob

__all__ = ["Entry", "LiveController", "LiveJob", "Run", "Start", "Stop"]
