"""A made-up machine room on a clock of its own: it carries out what a core decides, and much goes wrong.

Jobs run as fast as they please, fail, are cancelled and interrupted; servers, switches and links go and come
back. All of it follows from a seed. What the core was told is kept, with what it wanted after every tick.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from controller.core import (
    Cancelled,
    Core,
    Desired,
    Ended,
    Event,
    Interrupted,
    LinkBack,
    LinkGone,
    Progressed,
    Retried,
    ServerBack,
    ServerGone,
    Submitted,
    SwitchBack,
    SwitchGone,
    Tick,
)


@dataclass
class Room:
    """Drives a core until all jobs are over, with `mishaps` per job on average."""

    core: Core
    coming: Sequence[Submitted]
    seed: int
    servers: Sequence[str] = ()
    switches: Sequence[str] = ()
    links: Sequence[str] = ()
    """As ``a-b``."""
    mishaps: float = 1.0
    paces: tuple[float, float] = (0.8, 1.5)
    """Least and greatest duration of an iteration, as a multiple of what its job says."""
    check: Callable[[Desired], None] = lambda desired: None
    events: list[Event] = field(default_factory=list)
    wanted: list[Desired] = field(default_factory=list)

    def run(self) -> None:
        rng = random.Random(self.seed)
        core = self.core
        coming = sorted(self.coming, key=lambda each: each.at_s)
        done: dict[str, float] = {}
        pace: dict[str, float] = {}
        down: dict[str, float] = {}
        left = round(self.mishaps * len(coming))
        now_s = 0.0
        for _ in range(400 * len(coming) + 400):
            if not coming and not core.jobs:
                return
            while coming and coming[0].at_s <= now_s:
                self.tell(coming.pop(0))
            while core.next_s <= now_s:
                self.tell(Tick(now_s))
                self.wanted.append(core.desired())
                self.check(self.wanted[-1])
            running = [name for run in core.desired().runs for name in run.jobs]
            for name in running:
                pace.setdefault(name, core.jobs[name].spec.iteration_s * rng.uniform(*self.paces))
            ends = {
                name: now_s + (core.jobs[name].spec.iterations - done.get(name, 0.0)) * pace[name]
                for name in running
            }
            mishap_s = now_s + rng.expovariate(0.02) if left else math.inf
            next_s = min(
                [*ends.values(), core.next_s, mishap_s, *down.values()] + [each.at_s for each in coming[:1]]
            )
            assert next_s < math.inf, f"nothing would ever happen again; {list(core.jobs)} wait"
            next_s = max(next_s, now_s)
            for name in running:
                done[name] = done.get(name, 0.0) + (next_s - now_s) / pace[name]
            now_s = next_s
            for name in running:
                if ends[name] <= now_s:
                    self.tell(Ended(now_s, name))
                elif rng.random() < 0.5:
                    self.tell(Progressed(now_s, name, done[name]))
            for name in [name for name, until_s in down.items() if until_s <= now_s]:
                del down[name]
                if name in self.links:
                    self.tell(LinkBack(now_s, *name.split("-")))
                else:
                    self.tell((ServerBack if name in self.servers else SwitchBack)(now_s, name))
            if mishap_s <= now_s:
                left -= 1
                self.mishap(rng, now_s, down)
        raise AssertionError(f"{list(core.jobs)} never end")

    def mishap(self, rng: random.Random, now_s: float, down: dict[str, float]) -> None:
        """Have something go wrong."""
        core = self.core
        running = [name for run in core.desired().runs for name in run.jobs]
        failed = [each.job.spec.name for each in core.finished_jobs if each.outcome == "failed"]
        parts = {"server": self.servers, "switch": self.switches, "link": self.links}
        kind = rng.choice(("fail", "interrupt", "cancel", "retry", "server", "server", "switch", "link"))
        if kind == "fail" and running:
            self.tell(Ended(now_s, rng.choice(running), "exited with status 3"))
        elif kind == "interrupt" and running:
            self.tell(Interrupted(now_s, rng.choice(running), "its machine was rebooted"))
        elif kind == "cancel" and core.jobs:
            self.tell(Cancelled(now_s, rng.choice(list(core.jobs))))
        elif kind == "retry" and failed and failed[-1] not in core.jobs:
            if not any(isinstance(event, Retried) and event.job == failed[-1] for event in self.events):
                self.tell(Retried(now_s, failed[-1]))
        elif up := [name for name in parts.get(kind, ()) if name not in down]:
            name = rng.choice(up)
            down[name] = now_s + rng.uniform(1, 60)
            if kind == "link":
                self.tell(LinkGone(now_s, *name.split("-")))
            else:
                self.tell((ServerGone if kind == "server" else SwitchGone)(now_s, name))

    def tell(self, event: Event) -> None:
        self.events.append(event)
        self.core.handle(event)
