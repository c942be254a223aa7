"""The virtual testbed: jobs, hosts, links and switches in virtual time, packet by packet.

It runs the real switch program, compiled, in the engine that also serves real ports; the workers' real
windows, congestion control and priorities; the real cores of fallback servers; and the controller's real
plans. Only the clock, the links and the time for computing are simulated. The same seed gives the same
packets::

    jobs = read_jobs("jobs.toml")
    topology, placements = build(jobs, (2, 4), servers=True)
    report = VirtualTestbed(topology, jobs, placements, VirtualSettings(slots=1024)).run()
"""

from bmv2_topos.testbeds.virtual.allocation import Policy, Reallocation, Regions
from bmv2_topos.testbeds.virtual.jobs import RunningJob
from bmv2_topos.testbeds.virtual.placement import Placement, build, shortest_tree
from bmv2_topos.testbeds.virtual.recorder import Recorder
from bmv2_topos.testbeds.virtual.report import FlowReport, JobReport, Occupancy, Prediction, Report
from bmv2_topos.testbeds.virtual.settings import Stalled, TestbedError, VirtualSettings, WrongSum
from bmv2_topos.testbeds.virtual.testbed import VirtualTestbed, unsupported
from bmv2_topos.testbeds.virtual.traffic import Flow, random_flows

__all__ = [
    "Flow",
    "FlowReport",
    "JobReport",
    "Occupancy",
    "Placement",
    "Policy",
    "Prediction",
    "Reallocation",
    "Recorder",
    "Regions",
    "Report",
    "RunningJob",
    "Stalled",
    "TestbedError",
    "VirtualSettings",
    "VirtualTestbed",
    "WrongSum",
    "build",
    "random_flows",
    "shortest_tree",
    "unsupported",
]
