"""Real workers, programs as the controller admits jobs to them, and the fallback server, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests import effort
from tests.contract.compiled_fabric import compiled_fabric
from tests.hostlib.fabric import FabricCase, carry_out, fabric_cases


@pytest.mark.slow
@settings(max_examples=effort.cases(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fabric_cases)
def test_every_sum_is_exact_in_any_tree_of_any_jobs(case: FabricCase) -> None:
    """Both programs, one to three levels, up to three jobs at once: invariants 1 and 2."""
    with compiled_fabric(case) as network:
        carry_out(case, network)
