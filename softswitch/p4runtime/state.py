"""The configuration of a switch: one bundle of program and state, always replaced as a whole.

The state includes digest subscriptions, with their lists and acknowledgements (P4Runtime section 16.3). This
module has no clock and no stream: times are parameters, in nanoseconds, and digest lists are return values.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from p4src.messages import p4runtime_pb2 as p4
from p4src.messages.cookie import cookie_of
from softswitch.compiler import Choice, ir
from softswitch.compiler.errors import CompileError
from softswitch.engine.build import load
from softswitch.engine.cache import compile_once, p4info_once
from softswitch.engine.pipeline import MAX_FRAME, Pipeline, PipelineError, Trace
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import schema as schemas
from softswitch.p4runtime.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound

MAX_WAITING = 4096
"""Maximum number of digests in one list, even if its subscription allows longer lists."""


@dataclass(slots=True)
class Subscription:
    """A controller's subscription to one digest, with its unsent data and its unacknowledged lists."""

    entry: Any
    waiting: dict[bytes, Any] = field(default_factory=dict)
    """Data by its serialization, in the order in which the program sent it."""
    since_ns: int = 0
    sent: dict[int, tuple[int, list[bytes]]] = field(default_factory=dict)
    """Time in nanoseconds and data of each unacknowledged list, by list id."""
    known: set[bytes] = field(default_factory=set)
    """The data of all unacknowledged lists."""
    next_list: int = 1

    def offer(self, data: Any, now_ns: int) -> None:
        """Queue a digest sent by the program, unless the same data is queued or unacknowledged."""
        key = data.SerializeToString(deterministic=True)
        if len(self.waiting) >= MAX_WAITING or key in self.waiting or key in self.known:
            return
        if not self.waiting:
            self.since_ns = now_ns
        self.waiting[key] = data

    def due(self, now_ns: int) -> Iterator[Any]:
        """Yield each list that is full or has reached its maximum waiting time."""
        config = self.entry.config
        limit = config.ack_timeout_ns
        for number in [number for number, (at, _) in self.sent.items() if now_ns - at >= limit]:
            self.forget(number)
        most = min(config.max_list_size or MAX_WAITING, MAX_WAITING)
        while len(self.waiting) >= most or (self.waiting and now_ns - self.since_ns >= config.max_timeout_ns):
            yield self._send(list(islice(self.waiting, most)), now_ns)
            self.since_ns = now_ns

    def forget(self, number: int) -> None:
        """Discard the list `number`, which the controller has acknowledged, or whose time is over."""
        _, keys = self.sent.pop(number, (0, ()))
        self.known.difference_update(keys)

    def _send(self, keys: list[bytes], now_ns: int) -> Any:
        number = self.next_list
        self.next_list += 1
        if self.entry.config.ack_timeout_ns > 0:
            self.sent[number] = (now_ns, keys)
            self.known.update(keys)
        data = [self.waiting.pop(key) for key in keys]
        return p4.DigestList(digest_id=self.entry.digest_id, list_id=number, data=data)


Backend = Literal["auto", "compiled", "interpreter"]

_WRAPPER = re.compile(rb"\A\x08\x01\x1a[\x80-\xff]*[\x00-\x7f]")
"""What precedes the source in PI's ``p4.tmp.P4DeviceConfig``, which controllers of p4lang/tutorials send."""
_DIRECTIVE = re.compile(r"^(?:.*\*/)?\s*#\s*(?!line\b|\d)(\w*)", re.MULTILINE)

EntryKey = tuple[str, tuple[ir.Pattern, ...] | None, int]
"""(table, match, priority) of an entry; the match of a table's default entry is None."""


@dataclass(slots=True)
class ProfileState:
    """Members and groups of one action profile, as they were written."""

    members: dict[int, Any] = field(default_factory=dict)
    groups: dict[int, Any] = field(default_factory=dict)
    one_shots: dict[EntryKey, int] = field(default_factory=dict)
    """Number of the group made for each entry that has an action set."""


@dataclass(slots=True)
class Timeout:
    """The idle timeout of an entry.

    `told_us` is the time of the entry's last report as idle; 0: the entry has never been reported.
    """

    entry: ir.ConstEntry
    timeout_ns: int
    told_us: int = 0


@dataclass(frozen=True, slots=True)
class Bundle:
    """One loaded program with everything that controllers have written to it.

    Attributes:
        config: The ``ForwardingPipelineConfig`` from which the program was loaded.
        program: The program in IR.
        schema: The objects of the program's P4Info.
        pipeline: The loaded program.
        packet_headers: The headers between controller and CPU port; see `schema.packet_headers`.
        groups: The multicast groups as they were written, by group id.
        sessions: The clone sessions as they were written, by session id.
        metadata: The opaque fields (metadata, controller_metadata) of table entries that have them.
        profiles: The members and groups of action profiles, by profile id.
        choices: The ``TableAction`` of each entry in a table with an action profile.
        timeouts: The idle timeouts of entries.
        digests: The controllers' subscriptions, by digest id.
        messages: A cache of entries that were encoded for earlier reads.
        now_us: Returns the time of the switch's clock in microseconds.
    """

    config: Any
    program: ir.Program
    schema: schemas.Schema
    pipeline: Pipeline
    packet_headers: Mapping[str, tuple[schemas.ParamInfo, ...]] = field(default_factory=dict)
    groups: dict[int, Any] = field(default_factory=dict)
    sessions: dict[int, Any] = field(default_factory=dict)
    metadata: dict[EntryKey, tuple[bytes, int]] = field(default_factory=dict)
    profiles: dict[int, ProfileState] = field(default_factory=dict)
    choices: dict[EntryKey, Any] = field(default_factory=dict)
    timeouts: dict[EntryKey, Timeout] = field(default_factory=dict)
    digests: dict[int, Subscription] = field(default_factory=dict)
    messages: dict[tuple[str, ir.ConstEntry], Any] = field(default_factory=dict)
    now_us: Callable[[], int] = lambda: 0

    def read_register(self, name: str, index: int) -> list[int]:
        """Return the scalars of a register's cell."""
        parts = self.program.register_arrays[name].parts
        return [self.pipeline.read_register(part, index) for part in parts]

    def write_register(self, name: str, index: int, values: Sequence[int]) -> None:
        """Set the scalars of a register's cell."""
        for part, value in zip(self.program.register_arrays[name].parts, values, strict=True):
            self.pipeline.write_register(part, index, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Options for loading the programs of a switch.

    Attributes:
        backend: The back end that runs the programs; see `softswitch.load`.
        undefined: The choice of undefined values in programs; None: the one that runs fastest.
        trace: Receives each step of each packet; only the interpreter reports steps.
        architecture: Accept only programs for this architecture (v1model, tna or t2na); None: any.
    """

    backend: Backend = "auto"
    undefined: Choice | None = None
    trace: Trace | None = None
    architecture: str | None = None


def prepare(config: Any, loading: Loading, *, now_us: Callable[[], int] = lambda: 0) -> Bundle:
    """Compile and load a ``ForwardingPipelineConfig``.

    The device config is preprocessed P4 source. `now_us` returns the time in microseconds.

    Raises InvalidArgument if the source does not compile, or does not fit the P4Info.
    """
    if not config.HasField("p4info"):
        raise InvalidArgument("the config has no P4Info; send the P4Info of the program in the device config")
    source = _source(config.p4_device_config)
    try:
        program = compile_once(source, name="device config", undefined=loading.undefined)
        info = p4info_once(source, name="device config", undefined=loading.undefined)
    except CompileError as error:
        expected = f"; expected {error.expected}" if error.expected else ""
        raise InvalidArgument(f"the program does not compile: {error}{expected}") from error
    schema = schemas.from_p4info(config.p4info, program)
    wrong = schemas.differences(schema, schemas.from_p4info(info, program))
    if wrong:
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise InvalidArgument("the P4Info does not fit the program: " + "; ".join(wrong[:5]) + more)
    try:
        return _loaded(config, program, schema, info, loading, now_us=now_us)
    except PipelineError as error:
        raise InvalidArgument(f"the program cannot run on this switch: {error}") from error


def _loaded(
    config: Any,
    program: ir.Program,
    schema: schemas.Schema,
    info: Any,
    loading: Loading,
    *,
    now_us: Callable[[], int],
) -> Bundle:
    """Load a compiled program, whose own P4Info is `info`. Raises PipelineError if it cannot run here."""
    if loading.architecture not in (None, program.architecture):
        raise PipelineError(
            f"the program is for architecture {program.architecture};"
            f" this switch runs {loading.architecture} only"
        )
    pipeline = load(program, backend=loading.backend, trace=loading.trace)
    return Bundle(config, program, schema, pipeline, schemas.packet_headers(info, program), now_us=now_us)


def _source(device_config: bytes) -> str:
    try:
        source = _WRAPPER.sub(b"", device_config).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"the device config is not P4 source in UTF-8 ({error}); this switch compiles its own programs"
        ) from error
    if not source.strip():
        raise InvalidArgument("the device config is empty; it must be the P4 source, preprocessed")
    directive = _DIRECTIVE.search(source)
    if directive:  # an #include would read this machine's files for the sender
        line = source.count("\n", 0, directive.start(1)) + 1
        raise InvalidArgument(
            f"line {line} of the device config is a #{directive.group(1)}; send the source preprocessed"
        )
    return source


class Device:
    """The configuration of one switch: the running bundle and the bundle that requests refer to.

    The two bundles differ only between VERIFY_AND_SAVE and COMMIT. `mutex` serializes requests; users of a
    bundle's pipeline hold `switch.locked()` as well.
    """

    def __init__(
        self,
        switch: Switch,
        loading: Loading | None = None,
        *,
        carry_over: Callable[[Bundle, Bundle], None] = lambda old, new: None,
    ) -> None:
        self.switch = switch
        self._carry_over = carry_over
        self.mutex = threading.RLock()
        self._loading = loading or Loading()
        self.running: Bundle | None = None
        """The bundle whose pipeline processes packets; None if no program is loaded."""
        self._saved: Bundle | None = None
        self.writes = 0
        """The number of requests that may have changed the program or its entries, including failed ones.

        While this number stays the same, program and entries are unchanged."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the mutex for a request that may change program or entries; afterwards, increment `writes`."""
        with self.mutex:
            try:
                yield
            finally:
                self.writes += 1

    @property
    def bundle(self) -> Bundle:
        """The bundle that reads and writes refer to. Raises FailedPrecondition if no program is loaded."""
        found = self._saved or self.running
        if found is None:
            raise FailedPrecondition("no program is loaded; set a forwarding pipeline config first")
        return found

    @property
    def config(self) -> Any:
        """The config from which `bundle` was loaded, or None."""
        found = self._saved or self.running
        return found and found.config

    def preload(self, source: str) -> None:
        """Load and run a preprocessed program, as VERIFY_AND_COMMIT does.

        Raises CompileError or PipelineError.
        """
        self._commit(self._own(source))

    def reload(self, source: str) -> None:
        """Load and run a preprocessed program; objects in both programs keep their entries and cells.

        RECONCILE_AND_COMMIT does the same. Raises CompileError or PipelineError, or InvalidArgument if the
        new program cannot take an entry; the old program then stays.
        """
        self._reconcile(self._own(source))

    def _own(self, source: str) -> Bundle:
        program = compile_once(source, undefined=self._loading.undefined)
        info = p4info_once(source, undefined=self._loading.undefined)
        text = source.encode()
        config = p4.ForwardingPipelineConfig(p4info=info, p4_device_config=text)
        config.cookie.cookie = cookie_of(info, text)
        schema = schemas.from_p4info(info, program)
        return _loaded(config, program, schema, info, self._loading, now_us=self.switch.now_us)

    def configure(self, action: int, config: Any, permit: Callable[[], None] = lambda: None) -> None:
        """Apply one SetForwardingPipelineConfig `action`; on any error nothing has changed.

        `permit` raises RequestError if the sender may not do this. It is called again when the program is
        compiled, because another controller may have become primary meanwhile.
        """
        permit()
        request = p4.SetForwardingPipelineConfigRequest
        if action not in request.Action.values()[1:]:
            raise InvalidArgument(
                f"action {action} is not a pipeline config action, such as VERIFY_AND_COMMIT"
            )
        if config is None and action != request.COMMIT:
            raise InvalidArgument(f"{request.Action.Name(action)} needs a config: P4Info and P4 source")
        if config is not None and action == request.COMMIT:
            raise InvalidArgument("COMMIT takes no config: it commits the saved config")
        bundle = config and prepare(config, self._loading, now_us=self.switch.now_us)
        with self.mutex:
            permit()
            match action:
                case request.VERIFY_AND_SAVE:
                    with self.writing():
                        self._saved = bundle
                case request.VERIFY_AND_COMMIT:
                    self._commit(bundle)
                case request.COMMIT:
                    if self._saved is None:
                        raise NotFound("no config is saved; VERIFY_AND_SAVE one before COMMIT")
                    self._commit(self._saved)
                case request.RECONCILE_AND_COMMIT:
                    self._reconcile(bundle)

    def _reconcile(self, bundle: Bundle) -> None:
        with self.mutex, self.switch.locked():
            if self.running is not None:
                self._carry_over(self.running, bundle)
            self._commit(bundle)

    def _commit(self, bundle: Bundle) -> None:
        with self.writing(), self.switch.locked():
            old = self.running
            self.switch.load(bundle.pipeline)
            for group in old.groups if old else ():
                self.switch.set_multicast_group(group, None)
            for session in old.sessions if old else ():
                self.switch.set_clone_session(session, None)
            for group, entry in bundle.groups.items():
                self.switch.set_multicast_group(group, members(entry))
            for session, entry in bundle.sessions.items():
                self.switch.set_clone_session(session, members(entry), entry.packet_length_bytes)
            self.running = bundle
            self._saved = None

    def send_to_cpu(self, frame: bytes) -> None:
        """Deliver a controller's frame to the CPU port.

        Raises FailedPrecondition if there is no CPU port; InvalidArgument if no port could accept the frame.
        """
        if not 1 <= len(frame) <= MAX_FRAME:
            raise InvalidArgument(f"the frame has {len(frame)} bytes; this switch takes 1 to {MAX_FRAME}")
        for number, port in self.switch.ports.items():
            if isinstance(port, MemoryPort) and port.cpu:
                self.switch.packet_out(number, frame)
                return
        raise FailedPrecondition("this switch has no CPU port; start it with a port of kind cpu")


def members(entry: Any) -> list[tuple[int, int]]:
    """Decode the (port, replication id) pairs of a multicast group or clone session."""
    return [
        (int.from_bytes(r.port, "big") if r.WhichOneof("port_kind") == "port" else r.egress_port, r.instance)
        for r in entry.replicas
    ]


def check_kind(kind: int, is_present: bool, *, exists: str, missing: str) -> None:
    """Raise an error if an update inserts an existing entry, changes a missing one, or has no type.

    Args:
        kind: The update's type.
        is_present: Whether the entry exists.
        exists: The message for an insertion of an existing entry.
        missing: The message for a change of a missing entry.
    """
    match kind:
        case p4.Update.INSERT if is_present:
            raise AlreadyExists(exists)
        case p4.Update.MODIFY | p4.Update.DELETE if not is_present:
            raise NotFound(missing)
        case p4.Update.INSERT | p4.Update.MODIFY | p4.Update.DELETE:
            pass
        case _:
            raise InvalidArgument("the update has no type; it must be INSERT, MODIFY or DELETE")
