"""``ina schedule``: simulate schedulers on traces of jobs side by side, and show what they decide."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("schedule", "Simulate schedulers of training jobs; see docs/schedulers/.")


def _add(name: str, place: str, line: str) -> None:
    register(app, name, f"ina.cli.{place}", line)


_add(
    "simulate",
    "schedule.simulate:simulate",
    "Run policies on the same jobs and compare what becomes of these.",
)
_add(
    "plan",
    "schedule.plan:plan",
    "Print what a policy runs if all jobs are there now: the groups, how they interleave, and who waits.",
)
_add(
    "sweep",
    "schedule.sweep:sweep",
    "Run policies over several loads and seeds, and print means over the seeds.",
)
_add(
    "tune",
    "schedule.tune:tune",
    "Replay the same jobs with other settings, and keep what makes a metric less.",
)
_add(
    "policies",
    "schedule.policies:policies",
    "List the policies by family, and what can be set of them.",
)
_add(
    "profile",
    "schedule.profile:profile_",
    "Measure how fast a running job is with fewer and more CPUs.",
)
_add(
    "interleave",
    "interleave:interleave_",
    "Run groups of training jobs in turns and set the speed-up beside the prediction.",
)
_add(
    "live",
    "live_schedule:live",
    "Run jobs when and where a policy says, with gradients summed in the switch.",
)
