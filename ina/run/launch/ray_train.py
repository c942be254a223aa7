"""Runs the workers of Ray Train on the servers that the controller chose for a job, with the job's slots.

The runner starts the job's command once, as a driver of Ray, with the environment `variables`. An unmodified
``TorchTrainer`` loads this module's callback (``RAY_TRAIN_CALLBACKS``), which pins each worker to a node. Its
ranks use the controller's admission of the job (``INA_GIVEN``), and request no second one.
This module needs Ray.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from typing import Any

from ray.train.v2._internal.execution.callback import ControllerCallback

NODES = "INA_RAY_NODES"
"""Name of the environment variable of a driver that has the node id of each worker, as a JSON list."""
NODE_LABEL = "ray.io/node-id"


def variables(given: str, nodes: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that a driver needs besides the inherited ones.

    Args:
        given: The run's order as JSON, which the workers get in ``INA_GIVEN`` for ``ina admit --given``.
        nodes: The node id of each worker.
    """
    workers = {"INA_GIVEN": given, "INA_TOKEN": secrets.token_hex(32)}
    return {
        NODES: json.dumps(nodes),
        "RAY_TRAIN_CALLBACKS": f"{__name__}.{Pinned.__name__}",
        "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": workers}}),
        "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",  # scripts may have their own runtime_env
    }


class Pinned(ControllerCallback):  # type: ignore[misc]
    """Pins the workers of a trainer to the nodes that the controller chose."""

    def __init__(self) -> None:
        self._nodes = json.loads(os.environ[NODES])

    def after_controller_start(self, train_run_context: Any) -> None:
        """Pin each worker of the trainer to its node; Ray Train calls this method.

        Raises ValueError if the trainer's number of workers differs from the job's number of workers.
        """
        scaling = train_run_context.scaling_config
        if scaling.num_workers != len(self._nodes):
            raise ValueError(
                f"ScalingConfig has num_workers={scaling.num_workers!r}, but the job was submitted to the "
                f"controller with {len(self._nodes)} workers: want the same number"
            )
        scaling.label_selector = [{NODE_LABEL: node} for node in self._nodes]
