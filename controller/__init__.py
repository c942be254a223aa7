"""Control of switches that aggregate: admission of jobs, their memory, ordinary forwarding."""

from controller.errors import BadJob, ControllerError, NoSuchJob, ProgramMismatch
from controller.model import Admission, Job, Member, Region, SwitchInfo
from controller.programs import ProgramBundle, locate
from controller.session import Controller

__all__ = [
    "Admission",
    "BadJob",
    "Controller",
    "ControllerError",
    "Job",
    "Member",
    "NoSuchJob",
    "ProgramBundle",
    "ProgramMismatch",
    "Region",
    "SwitchInfo",
    "locate",
]
