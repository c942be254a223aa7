"""Training jobs and the cluster that they are to run on, as plain data: what allocation policies work on."""

from controller.workload.model import Cluster, Link, Server, Switch, TrainingJob

__all__ = ["Cluster", "Link", "Server", "Switch", "TrainingJob"]
