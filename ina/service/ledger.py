"""What the service knows: the events, the core that has taken them in, and what is held of each run.

All that changes the core passes `Ledger.record`: it is written down first. So another ledger of the same
store knows the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.core import (
    Event,
    LinkBack,
    LinkGone,
    Progressed,
    ServerBack,
    ServerGone,
    Submitted,
    SwitchBack,
    SwitchGone,
    Tick,
)
from controller.core.events import event_of
from controller.core.events import plain as plain_event
from controller.vocabulary import Topology
from ina.service.clock import Clock
from ina.service.faults import fault_point
from ina.service.holds import Hold
from ina.service.policies import Policies
from ina.service.records import Said
from ina.service.store import Store


class Ledger:
    """The service's knowledge; used in the thread of its loop.

    Attributes:
        topology: The whole cluster.
        policies: Who decides.
        core: The core; to be changed by `record` only.
        submitted: What was submitted, by name.
        keys: The jobs of each submission, by tenant and idempotency key.
        drained: Why nobody may use these servers and switches.
        down: Why these switches are gone.
        cut: Why these links are, by their ends.
        latest: Iterations that jobs have done by now; the core is told less often.
        holds: What is held, by run.
        woken: Set when the loop has something to do.
    """

    def __init__(self, store: Store, topology: Topology, policies: Policies, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.topology = topology
        self.policies = policies
        self.core = policies.core(topology)
        self.submitted: dict[str, Said] = {}
        self.keys: dict[tuple[str, str], list[str]] = {}
        self.drained: dict[str, str] = {}
        self.down: dict[str, str] = {}
        self.cut: dict[tuple[str, str], str] = {}
        self.latest: dict[str, float] = {}
        self.holds: dict[int, Hold] = {}
        self.woken = asyncio.Event()

    @property
    def now_s(self) -> float:
        """Seconds since the service's first start."""
        return max(self._clock.now_s(), self.core.now_s)

    @property
    def up(self) -> Topology:
        """The part of the cluster that works; the same object as long as that does not change."""
        allocation = self.core.allocation
        assert allocation is not None
        return allocation.allocator.topology

    def recover(self) -> None:
        """Take in what the store holds. Raises StoreError, and BadSpec for events of another cluster."""
        for row in self._store.events():
            self._take_in(row.body)
        self.holds = {number: Hold.of(body) for number, body in self._store.holds().items()}

    # ------------------------------------------------------------------ events

    def record(self, events: Sequence[Event], **beside: Any) -> None:
        """Write events down, and have the core know them. Raises StoreError; then nothing has happened."""
        if not events:
            return
        bodies = [{"event": plain_event(event), **beside} for event in events]
        self._store.append([(event.at_s, body) for event, body in zip(events, bodies, strict=True)])
        fault_point("recorded")
        for body in bodies:
            self._take_in(body)
        self.woken.set()

    def decide(self) -> None:
        """Have the core decide all that is due."""
        while self.core.next_s <= self.now_s:
            self.record([Tick(self.now_s)])

    def _take_in(self, body: Mapping[str, Any]) -> None:
        """Have the core know an event that is written down."""
        event = event_of(body["event"])
        match event:
            case Submitted():
                assert event.job is not None
                tenant, key = body.get("tenant", ""), body.get("key", "")
                said = Said(len(self.submitted) + 1, event.job, tenant, key)
                self.submitted[said.job.name] = said
                if key:
                    self.keys.setdefault((tenant, key), []).append(said.job.name)
            case ServerGone() | SwitchGone() if "drained" in body:
                self.drained[_node(event)] = event.reason
            case ServerBack() | SwitchBack() if "drained" in body:
                self.drained.pop(_node(event), None)
            case SwitchGone():
                self.down[event.switch] = event.reason
            case SwitchBack():
                self.down.pop(event.switch, None)
            case LinkGone():
                self.cut[event.a, event.b] = event.reason
            case LinkBack():
                self.cut.pop((event.a, event.b), None)
            case Progressed() if event.done is not None:
                self.latest[event.job] = event.done
        self.core.handle(event)

    # ------------------------------------------------------------------ holds

    def set(self, number: int, **changes: Any) -> None:
        """Change what is held of a run; `keep` writes it down."""
        hold = self.holds[number]
        hold.held = replace(hold.held, **changes)

    def keep(self, number: int) -> None:
        """Write down what is held of a run. Raises StoreError."""
        self._store.hold(number, self.holds[number].plain())
        fault_point("kept")

    def let_go(self, number: int) -> None:
        """Write down that nothing is held of a run any more. Raises StoreError."""
        self._store.let_go(number)
        fault_point("let go")

    def logs(self, said: Said) -> Path:
        """Return the folder for what a job's ranks write."""
        return self._store.folder / "logs" / str(said.number)


def _node(event: ServerGone | ServerBack | SwitchGone | SwitchBack) -> str:
    return event.server if isinstance(event, ServerGone | ServerBack) else event.switch
