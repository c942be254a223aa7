"""Trees of switches: some by name with their logical trees, and any."""

from dataclasses import replace

from hypothesis import strategies as st

from controller import Branch, Downlink, Member, Part, SwitchInfo, TreeAdmission
from controller.switches.planning import Identity, plan


def worker(rank: int, port: int) -> Member:
    return Member(rank, port, f"02:00:00:00:01:{rank:02x}", f"10.0.1.{rank + 1}", 9000 + rank)


def switch(name: str, *children: int | Branch, transit: bool = False) -> Branch:
    """A switch with these ranks and switches at its ports from 1 on; port 0 leads up."""
    members = tuple(worker(c, port) for port, c in enumerate(children, 1) if isinstance(c, int))
    links = tuple(Downlink(port, c, 0) for port, c in enumerate(children, 1) if isinstance(c, Branch))
    return Branch(name, members, links, transit=transit)


TREES = {
    "two racks": switch("root", switch("a", 0, 1), switch("b", 2, 3)),
    "three levels": switch("root", switch("a", switch("b", 0, 1), 2), switch("c", 3, 4)),
    "transit in the middle": switch(
        "root", switch("a", switch("b", 0, 1), 2, transit=True), 3, switch("c", 4)
    ),
    "transit at the bottom": switch("root", switch("a", switch("b", 0, 1, transit=True), 2), switch("c", 3)),
    "transit all the way": switch("root", switch("a", switch("b", 1, 0, transit=True), 2, transit=True), 3),
}


@st.composite
def trees(draw: st.DrawFn) -> Branch:
    """Any tree of up to three levels under a root, its ranks dealt out at random."""
    names = iter(range(1000))

    def build(depth: int) -> Branch:
        links = draw(st.integers(0, 2)) if depth else 0
        members = draw(st.integers(0 if links else 1, 3))
        return Branch(
            f"s{next(names)}",
            tuple(worker(0, i) for i in range(members)),
            tuple(Downlink(10 + i, build(depth - 1), 50) for i in range(links)),
            transit=depth < 3 and draw(st.booleans()),
        )

    root = build(3)
    ranks = iter(draw(st.permutations(range(sum(len(s.members) for s in root.walk())))))

    def deal(switch: Branch) -> Branch:
        members = tuple(worker(next(ranks), m.port or 0) for m in switch.members)
        links = tuple(replace(below, child=deal(below.child)) for below in switch.links)
        return replace(switch, members=members, links=links)

    return deal(root)


def as_admitted(jobs: dict[str, Part]) -> TreeAdmission:
    """What switches would hold of these jobs."""
    switches = {}
    for name, job in jobs.items():
        info = SwitchInfo(32, 8192, 255, 32, mode=job.mode)
        switches[name] = plan(job, Identity(1, 0x1FF), info=info, present=(), ports=range(100, 140))
    return TreeAdmission(switches)
