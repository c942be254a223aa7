"""Control of switches that aggregate: admission of jobs, their memory, ordinary forwarding."""

from controller.errors import ControllerError
from controller.model import Admission, Job, Member, Region, SwitchInfo
from controller.programs import ProgramBundle
from controller.session import Controller

__all__ = [
    "Admission",
    "Controller",
    "ControllerError",
    "Job",
    "Member",
    "ProgramBundle",
    "Region",
    "SwitchInfo",
]
