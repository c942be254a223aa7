"""Jobs of a group take turns on storage, CPU, GPU and network: the executor of Muri (SIGCOMM'22, section 5).

`join` returns to training code a timer whose stages wait for their turns (`hostlib.interleave.stages` has an
example). The process that starts the jobs runs a `TurnServer` and passes its `environment` on to each of
them; the stage at which each job starts a round comes from `controller.policies.grouping`.

- `turn_order`: decides which jobs may go on, without I/O;
- `turn_server`: moves the messages, and detects processes that are gone;
- `member`: the side of the training process.
"""

from hostlib.interleave.member import join
from hostlib.interleave.stages import (
    STAGES,
    GroupBroken,
    GroupError,
    Iteration,
    Ranks,
    StageError,
    StageProfile,
    StageTimer,
    job_profile,
)
from hostlib.interleave.turn_server import TurnServer

__all__ = [
    "STAGES",
    "GroupBroken",
    "GroupError",
    "Iteration",
    "Ranks",
    "StageError",
    "StageProfile",
    "StageTimer",
    "TurnServer",
    "job_profile",
    "join",
]
