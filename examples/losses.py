"""Measure what lost packets cost a job, and what probes save: ``ina experiment examples/losses.py``."""

from dataclasses import replace

from bmv2_topos.harness import Scenario, Study
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link


def run(loss: float, window: int, seed: int, probes: bool = True) -> Report:
    """Run a job of four workers in virtual time."""
    job = Job(name="job", workers=4, window=window, iterations=3, layers_bytes=(131_072,), compute_s=0.0)
    settings = VirtualSettings(slots=512, seed=seed)
    if not probes:
        settings = replace(settings, rto=replace(settings.rto, probe_s=None))
    return Scenario(jobs=(job,), settings=settings, link=Link("a", "b", loss=loss)).run()


EXPERIMENT = Study(
    title="Lost packets, windows and probes",
    run=run,
    sweep={"loss": [0.0, 0.001, 0.01], "window": [32, 128]},
    seeds=3,
    measure={
        "iteration (ms)": lambda report: 1e3 * report.jobs[0].mean_iteration_s,
        "packets sent again": lambda report: report.jobs[0].resent_packets,
    },
    ablations={"without probes": {"probes": False}},
)
