"""``ina schedule``: simulate schedulers on traces of jobs side by side, and show what they decide."""

from __future__ import annotations

import typer

from controller.cli.register import register
from controller.cli.schedule import plan, policies, simulate, sweep, tune

app = typer.Typer(no_args_is_help=True, help="Simulate schedulers of training jobs; see docs/schedulers.md.")
register(app, "simulate", simulate.simulate, simulate.EPILOG)
register(app, "plan", plan.plan, plan.EPILOG)
register(app, "sweep", sweep.sweep, sweep.EPILOG)
register(app, "tune", tune.tune, tune.EPILOG)
register(app, "policies", policies.policies, policies.EPILOG)
