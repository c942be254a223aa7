"""Servers are used as long as the engine that starts processes there can use them."""

from __future__ import annotations

from controller.core import Event, ServerBack, ServerGone
from ina.service.executor import Executor
from ina.service.ledger import Ledger


def see_servers(ledger: Ledger, executor: Executor) -> None:
    """Tell the core which servers are gone, and which are back. Raises StoreError."""
    gone, now_s = executor.gone(), ledger.now_s
    for name, why in gone.items():
        if name not in ledger.lost and name not in ledger.drained:
            ledger.record([ServerGone(now_s, name, why)])
    for name in ledger.lost.keys() - gone.keys():
        events: list[Event] = [ServerBack(now_s, name)]
        ledger.record(events)
        if name in ledger.drained:
            ledger.record([ServerGone(now_s, name, ledger.drained[name])], drained=True)
