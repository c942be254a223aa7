"""``ina schedule``: simulate schedulers on traces of jobs side by side, and explain their decisions."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("schedule", "Simulate and run schedulers of training jobs; see docs/schedulers/.")


def _add(name: str, place: str, line: str) -> None:
    register(app, name, f"ina.cli.{place}", line)


_add(
    "simulate",
    "schedule.simulate:simulate",
    "Simulate policies on the same jobs, and compare the results.",
)
_add(
    "plan",
    "schedule.plan:plan",
    "Show what a policy would run if all jobs had arrived: groups, their interleaving, and waiting jobs.",
)
_add(
    "sweep",
    "schedule.sweep:sweep",
    "Simulate policies over several loads and seeds, and print means over the seeds.",
)
_add(
    "tune",
    "schedule.tune:tune",
    "Simulate the same jobs with other settings, and keep settings that lower a metric.",
)
_add(
    "policies",
    "schedule.policies:policies",
    "List the policies by family, and their parameters.",
)
_add(
    "profile",
    "schedule.profile:profile_",
    "Measure how the speed of a job depends on its number of CPUs.",
)
_add(
    "interleave",
    "interleave:interleave_",
    "Run groups of training jobs in turns, and compare the speed-up with the prediction.",
)
_add(
    "live",
    "live_schedule:live",
    "Run jobs when and where a policy decides, with gradients summed in the switch.",
)
