"""Control of switches that aggregate: admission of jobs, their memory, ordinary forwarding."""

from controller.errors import BadJob, ControllerError, NoSuchJob, ProgramMismatch
from controller.layout import JobTree, TreeLink, TreeSwitch
from controller.model import Admission, Job, Member, Mode, Place, Region, SwitchInfo, Uplink
from controller.programs import ProgramBundle, locate
from controller.session import Controller
from controller.tree import TreeAdmission, admit_tree, read_tree, read_trees, remove_tree

__all__ = [
    "Admission",
    "BadJob",
    "Controller",
    "ControllerError",
    "Job",
    "JobTree",
    "Member",
    "Mode",
    "NoSuchJob",
    "Place",
    "ProgramBundle",
    "ProgramMismatch",
    "Region",
    "SwitchInfo",
    "TreeAdmission",
    "TreeLink",
    "TreeSwitch",
    "Uplink",
    "admit_tree",
    "locate",
    "read_tree",
    "read_trees",
    "remove_tree",
]
