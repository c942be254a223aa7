"""Jobs of a group take turns on storage, CPU, GPU and network: the executor of Muri (SIGCOMM'22, section 5).

`join` gives training code the timer whose stages wait for their turns (`hostlib.stages` shows how it is
used). Whoever starts the jobs runs a `Conductor` and passes its `environment` on to each of them; the stage
at which each job starts a round comes from `controller.grouping`.

- `rota`: whose turn it is, without I/O;
- `conductor`: moves the messages, and notes who is gone;
- `member`: the side of the training process.
"""

from hostlib.interleave.conductor import Conductor
from hostlib.interleave.errors import GroupBroken, GroupError
from hostlib.interleave.member import join
from hostlib.stages import STAGES, Iteration, Ranks, StageError, StageProfile, StageTimer, job_profile

__all__ = [
    "STAGES",
    "Conductor",
    "GroupBroken",
    "GroupError",
    "Iteration",
    "Ranks",
    "StageError",
    "StageProfile",
    "StageTimer",
    "job_profile",
    "join",
]
