"""What tests of the API share, and stories about the daemon in virtual time: asynchronous tests."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from ina.run.tokens import Role, Tokens
from tests.ina.run import bed as beds
from tests.ina.run import served as stories


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test in the loop of the daemon that it is about."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in names}
    given["served"].loop.run_until_complete(pyfuncitem.obj(**given))
    return True


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[stories.Served]:
    """A daemon in virtual time, with the policies that its parameter says."""
    with stories.serving(**getattr(request, "param", {})) as made:
        yield made


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[beds.Bed]:
    with beds.serving(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service that has no tokens, for all tests of a module that leave it as it is."""
    folder: Path = tmp_path_factory.mktemp("shared")
    with (
        beds.serving(folder) as made,
        httpx.Client(base_url=made.url, timeout=beds.TIMEOUT_S, trust_env=False) as client,
    ):
        yield client


def settling(bed: beds.Bed, headers: Mapping[str, str]) -> httpx.Client:
    """Return a client whose requests end when the service has done what follows from them."""
    return httpx.Client(
        base_url=bed.url,
        headers=headers,
        timeout=beds.TIMEOUT_S,
        trust_env=False,
        event_hooks={"response": [bed.settle]},
    )


@pytest.fixture
def http(bed: beds.Bed) -> Iterator[httpx.Client]:
    with settling(bed, {}) as client:
        yield client


@pytest.fixture
def people(bed: beds.Bed) -> Iterator[dict[str, httpx.Client]]:
    """Two submitters, an operator, and somebody without a token."""
    tokens = Tokens(bed.folder)
    made = {name: tokens.add(name, Role.SUBMITTER, beds.USER) for name in ("alice", "bob")}
    made |= {"root": tokens.add("root", Role.OPERATOR, beds.USER), "nobody": "", "guess": "ina_guess"}
    clients = {
        name: settling(bed, {"Authorization": f"Bearer {token}"} if token else {})
        for name, token in made.items()
    }
    yield clients
    for client in clients.values():
        client.close()
