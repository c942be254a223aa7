"""The cases of `tests.hostlib.fabric` on the compiled programs, admitted by the controller."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from controller.switches.layout import Branch, Deployment, Downlink
from controller.switches.model import Member, Uplink
from controller.switches.planning import Identity
from controller.vocabulary import Mode, Region
from hostlib._native import NativeKernel
from hostlib.core import Patience
from hostlib.core.congestion import CONGESTION
from hostlib.core.state import CoreSettings
from hostlib.fallback import FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree
from tests.contract.admitted import LANES, admit, serving
from tests.hostlib.fabric import ABOVE, UPLINK, FabricCase, JobCase, numbers_of, worker_port
from tests.hostlib.virtual_network import Network, endpoints

SERVER = Uplink(UPLINK, "02:00:00:00:fb:01", "10.0.255.2")


@contextlib.contextmanager
def compiled_fabric(case: FabricCase) -> Iterator[Network]:
    """Yield the network of a case, with real switches and the real fallback server."""
    program: Mode = "exclusive" if case.exclusive else "shared"
    trees = {
        Identity(10 + number, 0x501 + number): _deployment(case, number, program)
        for number in range(len(case.jobs))
    }
    admitted, present = admit(program, trees)
    network = Network(impairments=case.impairments, seed=case.seed, lanes=LANES)
    with contextlib.ExitStack() as stack:
        for name, admissions in present.items():
            network.add_switch(int(name), stack.enter_context(serving(program, admissions)))
        for below, above in ABOVE.items():
            if below in network.switches:
                network.connect((below, UPLINK), (above, 100 + below))
        if program == "shared":
            server = FallbackCore(FallbackSettings(LANES, endpoints(200)))
            for job in admitted:
                server.add_job(FallbackJob(job.job, job.epoch, Tree.of(job.tree)))
            network.add_server(server, (0, UPLINK))
        for number, (job_case, job) in enumerate(zip(case.jobs, admitted, strict=True)):
            for rank, place in enumerate(job_case.places):
                settings = CoreSettings(
                    job.job,
                    rank,
                    len(job_case.places),
                    2 * job.window,
                    LANES,
                    endpoints(10 * number + rank),
                    first_psn=job_case.first_psn,
                    tree=Tree.of(job.tree),
                    epoch=job.epoch,
                    fallback=program == "shared",
                    bare=bool(case.seed % 2),
                    numbers=numbers_of(job_case),
                )
                network.add_worker(
                    settings,
                    NativeKernel(),
                    (place, worker_port(number, rank)),
                    patience=Patience(200, 600),
                    congestion=CONGESTION[job_case.congestion](),
                )
        yield network


def _deployment(case: FabricCase, number: int, program: Mode) -> Deployment:
    job = case.jobs[number]
    root = _switch(case, number, 0)
    if program == "exclusive":
        return Deployment(root, max(2, 2 * job.window))
    return Deployment(
        root,
        mode="shared",
        preempt=job.preempt,
        window=job.window,
        max_age_us=case.max_age_us,
        fallback=SERVER,
    )


def _switch(case: FabricCase, number: int, switch: int) -> Branch:
    job: JobCase = case.jobs[number]
    members = tuple(
        Member(rank, worker_port(number, rank), f"02:00:00:00:{number:02x}:{rank:02x}", "10.0.0.1", 42592)
        for rank, place in enumerate(job.places)
        if place == switch
    )
    links = tuple(
        Downlink(100 + below, _switch(case, number, below), UPLINK)
        for below, above in ABOVE.items()
        if above == switch and below in job.used
    )
    return Branch(
        str(switch),
        members,
        links,
        region=None if case.exclusive else Region(0, case.slots),
        transit=job.node(switch) != switch,
    )
