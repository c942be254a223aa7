"""The client of the controller's HTTP API, for commands and other programs.

As in::

    with Client("http://127.0.0.1:9580") as controller:
        controller.submit([{"name": "a", "workers": 4, "command": "python train.py"}])
        for decision in controller.watch():
            print(decision["text"])

Needs ``pip install 'ina[service]'``.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import httpx

from ina.errors import ServiceError

if TYPE_CHECKING:
    from ina.run.views import (
        AdmissionView,
        AuditView,
        ClusterView,
        DecisionView,
        ExplanationView,
        JobGrant,
        JobView,
        LogView,
        MemoryView,
        QuotasView,
        QuotaView,
        ReallocationView,
        ReloadView,
    )

_SILENT_S = 60.0
"""Time, in s, without data after which a stream counts as lost. A controller sends data at least every
15 s."""
_AGAIN_S = 1.0


WRONG_VALUE = 422
"""Status code of a controller's answer to a job with a wrong value."""


class ClientError(ServiceError):
    """The controller cannot be reached, or refuses a request."""


class Unreachable(ClientError):
    """The controller does not answer, or another program answers at its address."""


class Refused(ClientError):
    """The controller refuses a request.

    Attributes:
        status: The status code of the controller's answer.
        pointer: The path of the wrong value, such as ``/jobs/0/workers``; "": none.
    """

    def __init__(self, text: str, *, status: int, pointer: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.pointer = pointer
        if status == WRONG_VALUE:
            self.exit_code = 2


class Client(AbstractContextManager["Client"]):
    """A connection to a controller, for one thread at a time.

    Args:
        controller: ``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:PATH``.
        token: The token to send; "": none.
        ca: A file of trusted certificates; None: the system's certificates.
        timeout_s: Maximum time, in s, to wait for an answer.

    Methods that take a job's `name` also accept the job's id or number, and from operators ``TENANT/NAME``. A
    name means the newest job of that name. All methods raise Unreachable and Refused. The constructor raises
    ValueError for another form of address, and for a token that would be sent to another machine without TLS.
    """

    def __init__(
        self, controller: str, *, token: str = "", ca: Path | None = None, timeout_s: float = 60.0
    ) -> None:
        self._name = controller
        transport: httpx.HTTPTransport
        if controller.startswith("unix:") and controller != "unix:":
            base = "http://localhost"
            transport = httpx.HTTPTransport(uds=controller.removeprefix("unix:"))
        else:
            base = controller
            url = _url(controller)
            if token and url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "::1"):
                raise ValueError(
                    f"{controller!r}: a token is sent to another machine over TLS only: want https://"
                )
            verify: ssl.SSLContext | bool = True
            if ca is not None:
                verify = ssl.create_default_context(cafile=str(ca))
            transport = httpx.HTTPTransport(verify=verify)
        self._http = httpx.Client(
            base_url=base,
            transport=transport,
            timeout=timeout_s,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            trust_env=False,  # use no proxy
        )

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    # ------------------------------------------------------------------ jobs

    def submit(self, jobs: Sequence[Mapping[str, object]], *, key: str = "") -> list[JobView]:
        """Submit jobs: the controller accepts all of them or none. Return the accepted jobs.

        Each job has the keys of a ``[[job]]`` table. A call with the `key` of an earlier call returns the
        jobs of the earlier call, so that a request can be repeated if its answer was lost.
        """
        return cast(
            "list[JobView]",
            self._send("POST", "/v1/jobs", json={"jobs": list(jobs)}, headers={"Idempotency-Key": key})[
                "jobs"
            ],
        )

    def jobs(self, *, states: Sequence[str] = (), tenant: str | None = None) -> list[JobView]:
        """Return jobs in order of submission: all jobs, or only those in `states` or of `tenant`."""
        filters = {"state": list(states), **({} if tenant is None else {"tenant": tenant})}
        return cast("list[JobView]", self._pages("jobs", 0, filters))

    def job(self, name: str) -> JobView:
        """Return the job `name`."""
        return cast("JobView", self._of_job("GET", name))

    def cancel(self, name: str) -> JobView:
        """End a job."""
        return cast("JobView", self._of_job("DELETE", name))

    def retry(self, name: str) -> JobView:
        """Run a failed job again."""
        return cast("JobView", self._of_job("POST", name, "/retry"))

    def explain(self, name: str) -> ExplanationView:
        """Return an explanation of a job's state, and of what would make the job run faster."""
        return cast("ExplanationView", self._of_job("GET", name, "/explanation"))

    def log(self, name: str, rank: int, offset: int = 0) -> LogView:
        """Return a piece of a rank's output; see `LogView`."""
        return cast("LogView", self._of_job("GET", name, f"/logs/{rank}", offset=offset))

    def follow_log(self, name: str, rank: int, offset: int = 0) -> Iterator[str]:
        """Yield a rank's output as it is written, until the rank's job is over."""
        path, params = _job(name)
        for kind, data in self._stream(f"{path}/logs/{rank}", {**params, "offset": offset}):
            if kind == "end":
                return
            yield data["text"]

    # ------------------------------------------------------------------ workers that another launcher starts

    def admit(
        self,
        name: str,
        machines: Sequence[tuple[Sequence[str], Sequence[int]]],
        token: str,
        *,
        job: Mapping[str, object] | None = None,
        key: str = "",
    ) -> AdmissionView:
        """Request the admission of a job whose workers another launcher starts.

        Args:
            name: The job's name.
            machines: Names and addresses of each machine, and the ranks there.
            token: The job's own token, of which only the SHA-256 is sent. A client with this token can call
                `renew`, `grant` and `leave` for the job.
            job: Further keys of a ``[[job]]`` table.
            key: Idempotency key; "": none.
        """
        body = {
            "name": name,
            "machines": [{"known_as": list(names), "ranks": list(ranks)} for names, ranks in machines],
            "job": dict(job or {}),
            "token_sha256": hashlib.sha256(token.encode()).hexdigest(),
        }
        return cast(
            "AdmissionView",
            self._send("POST", "/v1/admissions", json=body, headers={"Idempotency-Key": key}),
        )

    def renew(self, name: str, *, done: int | None = None) -> AdmissionView:
        """Renew the lease of an admitted job.

        `done` is the number of iterations that the job has done since its workers started; None: unknown.
        """
        return cast("AdmissionView", self._send("PUT", _admission(name), json={"done": done}))

    def grant(self, name: str) -> JobGrant:
        """Return the settings that the workers of an admitted job need; the job's state must be running."""
        return cast("JobGrant", self._send("GET", _admission(name)))

    def leave(self, name: str, failure: str = "") -> AdmissionView:
        """Report that the workers of an admitted job have ended; `failure` is their error, "" for none."""
        return cast("AdmissionView", self._send("POST", f"{_admission(name)}/end", json={"failure": failure}))

    # ------------------------------------------------------------------ the cluster

    def cluster(self) -> ClusterView:
        """Return servers, switches, links, and the jobs that use them."""
        return cast("ClusterView", self._send("GET", "/v1/cluster"))

    def memory(self) -> MemoryView:
        """Return which jobs have held which slots of each switch, and when."""
        return cast("MemoryView", self._send("GET", "/v1/memory"))

    def drain(self, node: str, *, back: bool = False) -> None:
        """Drain a server or a switch; with `back`, end its drain."""
        self._send("POST", f"/v1/nodes/{quote(node, safe='')}/{'undrain' if back else 'drain'}")

    def reallocate(self, job: str = "") -> ReallocationView:
        """Divide the switches' slots among jobs now; return each job's slots, and the reason for them.

        With `job`, return only the slots of this job.
        """
        return cast("ReallocationView", self._send("POST", "/v1/reallocation", params={"job": job}))

    def reload(self) -> ReloadView:
        """Tell the controller to read its cluster and policies files again; return the changes."""
        return cast("ReloadView", self._send("POST", "/v1/reload"))

    def quotas(self) -> list[QuotaView]:
        """Return the quotas of all visible tenants."""
        return cast("QuotasView", self._send("GET", "/v1/quotas"))["quotas"]

    def set_quota(
        self, tenant: str, *, gpus: int | None = None, reserved: int = 0, per_minute: int | None = None
    ) -> QuotaView:
        """Set or replace a tenant's quota.

        Args:
            tenant: The tenant's name.
            gpus: Maximum number of GPUs that the tenant's jobs may use at once; None: no limit.
            reserved: Number of GPUs that are kept free for this tenant's jobs.
            per_minute: Maximum number of jobs that the tenant may submit in a minute; None: no limit.
        """
        path = f"/v1/quotas/{quote(tenant, safe='')}"
        return cast(
            "QuotaView",
            self._send("PUT", path, json={"gpus": gpus, "reserved": reserved, "per_minute": per_minute}),
        )

    def remove_quota(self, tenant: str) -> None:
        """Remove a tenant's quota."""
        self._send("DELETE", f"/v1/quotas/{quote(tenant, safe='')}")

    def audit(self) -> AuditView:
        """Return the differences between the desired and the actual state of switches and servers."""
        return cast("AuditView", self._send("GET", "/v1/audit"))

    def decisions(self, after: int = 0) -> list[DecisionView]:
        """Return the events and decisions with numbers above `after`, oldest first; -N: the latest N."""
        return cast("list[DecisionView]", self._pages("events", after))

    def watch(self, after: int = 0) -> Iterator[DecisionView]:
        """Yield the decisions with numbers above `after`, then each new decision, without end."""
        for _, data in self._stream("/v1/events", {"after": after}):
            yield cast("DecisionView", data)

    # ------------------------------------------------------------------

    def _send(self, method: str, path: str, **options: Any) -> Any:
        with self._errors():
            answer = self._http.request(method, path, **options)
        if answer.is_success:
            return self._read(answer.content) if answer.content else None
        raise self._refusal(answer.status_code, answer.content)

    def _pages(self, what: str, after: int | None, filters: Mapping[str, object] = {}) -> list[Any]:
        """Return all items `what` with numbers above `after`, from as many requests as they need."""
        found: list[Any] = []
        while after is not None:
            page = self._send("GET", f"/v1/{what}", params={**filters, "after": after})
            found += page[what]
            after = page["next"]
        return found

    def _of_job(self, method: str, name: str, rest: str = "", **params: object) -> Any:
        path, tenant = _job(name)
        return self._send(method, f"{path}{rest}", params={**tenant, **params})

    def _stream(self, path: str, params: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
        """Yield the kind and the data of each event of a stream.

        After a lost connection, connect again, and continue after the last event.
        """
        last = ""
        while True:
            try:
                for number, kind, data in self._events(path, params, last):
                    last = number or last
                    yield kind, data
                    if kind == "end":
                        return
            except Unreachable:
                if not last:
                    raise
            time.sleep(_AGAIN_S)

    def _events(self, path: str, params: Mapping[str, Any], last: str) -> Iterator[tuple[str, str, Any]]:
        headers = {"Last-Event-ID": last} if last else {}
        timeout = httpx.Timeout(_SILENT_S)
        with (
            self._errors(),
            self._http.stream(
                "GET", path, params={**params, "follow": "true"}, headers=headers, timeout=timeout
            ) as answer,
        ):
            if not answer.is_success:
                raise self._refusal(answer.status_code, answer.read())
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name:
                    fields[name] = value
                elif "data" in fields:
                    yield fields.get("id", ""), fields.get("event", ""), self._read(fields["data"])
                    fields = {}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            raise Unreachable(f"the controller at {self._name} has not answered in time") from error
        except httpx.HTTPError as error:
            raise Unreachable(f"no controller can be reached at {self._name}: {error}") from error

    def _refusal(self, status: int, content: bytes) -> ClientError:
        try:
            found = json.loads(content)
            text, pointer = str(found["detail"]), str(found.get("pointer", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            return Unreachable(f"the program at {self._name}, with status {status}, is no controller")
        return Refused(f"{pointer}: {text}" if pointer else text, status=status, pointer=pointer)

    def _read(self, content: bytes | str) -> Any:
        try:
            return json.loads(content)
        except ValueError as error:
            raise Unreachable(f"the program at {self._name} is no controller: {error}") from error


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError(f"{text!r}: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"{text!r}: want http://HOST:PORT, https://HOST:PORT or unix:PATH")
    return url


def _admission(name: str) -> str:
    return f"/v1/admissions/{quote(name, safe='')}"


def _job(name: str) -> tuple[str, dict[str, object]]:
    """Return the URL path of a job, and its tenant as a query parameter if `name` is ``TENANT/NAME``."""
    tenant, slash, name = name.rpartition("/")
    return f"/v1/jobs/{quote(name, safe='')}", {"tenant": tenant} if slash else {}
