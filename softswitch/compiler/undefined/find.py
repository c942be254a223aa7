"""Find where a program depends on P4's undefined behaviour, by exploring all its paths.

Each path has a `PathState`. Conditions, tables and parser states split a path into several. Constant entries
that cannot match the known key values are skipped. The findings are an upper bound: paths that no packet
takes may be explored, but no path that a packet can take is omitted. If there are more than `MOST_STATES`
paths at one point, paths with the same valid headers are merged.

Settings of the control plane (entries, default actions) are assumed to be correct for the program: an index
that depends only on them is in range. Values from packets, registers and port numbers may be anything.

Copying an undefined value is not reported, but makes the target of the copy undefined, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE
from softswitch.compiler.ir.walk import TARGETED, subexpressions
from softswitch.compiler.undefined.conditions import Finding, Reader, assume, matching, not_matching, shown
from softswitch.compiler.undefined.state import (
    DROP_PORT,
    GROUP,
    MOST_IN_LOOPS,
    MOST_STATES,
    PARSER_ERROR,
    SPEC,
    Bounds,
    Leaves,
    PathSet,
    PathState,
    Seen,
    anything,
    constant,
    fitted,
    fresh,
    headers_below,
    merged,
    places_below,
    stack_size,
)


@dataclass(slots=True)
class Exploration:
    """One analysis of a program; `clones` is True once a path has requested a clone."""

    program: ir.Program
    reader: Reader
    paths: PathSet
    clones: bool = False


def _extern(e: Exploration, s: ir.Extern, state: PathState) -> None:
    """Apply the effects of an extern call to the state of one path, and report its undefined reads."""
    function, args = s.function, s.args
    if function.startswith("clone"):
        e.clones = True
    if function.startswith(("verify_checksum", "update_checksum")):
        _checksum(e, s, state)
        return
    inputs = args[1:] if function in TARGETED else args
    for arg in inputs:
        for expr in arg:
            e.reader.reads(expr, state)
    match function:
        case "register.read":
            e.reader.bounded(args[1][0], e.program.registers[s.instance].size, s.instance, s.pos, state)
            state.assign(args[0][0], None)
        case "meter.execute_meter":
            e.reader.bounded(args[1][0], e.program.meters[s.instance].size, s.instance, s.pos, state)
            state.assign(args[0][0], fitted(args[0][0].type, 0, 2, trusted=False))
        case "hash":
            base, most = state.value(args[1][0]), state.value(args[-1][0])
            high = base.high + max(most.high, 1) - 1
            trusted = base.trusted and most.trusted
            state.assign(args[0][0], fitted(args[0][0].type, base.low, high, trusted=trusted))
        case "random":
            low, high_ = state.value(args[1][0]), state.value(args[2][0])
            trusted = low.trusted and high_.trusted
            top = max(low.high, high_.high)
            state.assign(args[0][0], fitted(args[0][0].type, low.low, top, trusted=trusted))
        case "mark_to_drop":
            state.values[SPEC] = constant(DROP_PORT)
            state.values[GROUP] = constant(0)


def _checksum(e: Exploration, s: ir.Extern, state: PathState) -> None:
    e.reader.reads(s.args[0][0], state)
    update = s.function.startswith("update")
    inputs = s.args[1:-1] if update else s.args[1:]
    for where in assume(state.copy(), s.args[0][0], True):
        for arg in inputs:
            for expr in arg:
                e.reader.reads(expr, where)
    if update:
        target = s.args[-1][0]
        certain = state.value(s.args[0][0]).only == 1
        place, undefined = state.place(target), state.unset_at(target)
        state.assign(target, None)
        if undefined is not None and place is not None and not certain:
            state.unset[place] = undefined


def _apply(e: Exploration, s: ir.Apply, state: PathState, leaves: Leaves) -> list[PathState]:
    """Return the possible states of packets after the application of a table."""
    table = e.program.tables[s.table]
    for key in table.keys:
        e.reader.reads(key.expr, state)
    after: list[PathState] = []
    subjects = [key.expr for key in table.keys]
    rest: PathState | None = state
    for entry in table.entries if table.keys else ():
        matched = matching(rest.copy(), subjects, entry.patterns) if rest is not None else None
        if matched is not None:
            after += _run_action(e, s, matched, entry.invocation.action, entry.invocation.args, leaves)
        if rest is not None and table.const_entries:
            left = not_matching(rest, subjects, entry.patterns, split=False)
            rest = left[0] if left else None
    if rest is None:
        return after
    if table.keys and not table.const_entries:
        for ref in table.actions:
            if ref.scope != "default_only":
                after += _run_action(e, s, rest.copy(), ref.action, None, leaves)
    if table.const_default:
        return after + _run_action(e, s, rest, table.default.action, table.default.args, leaves, hit=False)
    for ref in table.actions:
        if ref.scope != "table_only":
            after += _run_action(e, s, rest.copy(), ref.action, None, leaves, hit=False)
    return after


def _run_action(
    e: Exploration,
    s: ir.Apply,
    state: PathState,
    name: str,
    args: Sequence[int] | None,
    leaves: Leaves,
    *,
    hit: bool = True,
) -> list[PathState]:
    """Return the states after the action `name` of a table ran with `args`.

    If `args` is None, the arguments are unknown: an entry of the control plane provides them.
    """
    table = e.program.tables[s.table]
    names = [ref.action for ref in table.actions]
    if s.hit is not None:
        state.assign(s.hit, constant(int(hit)))
    if s.action is not None:
        state.assign(s.action, constant(names.index(name)) if name in names else None)
    if table.direct_meter is not None:
        state.values.pop(e.program.meters[table.direct_meter].colour, None)
    if name not in e.program.actions:  # a group of an action profile
        return [state]
    params = e.program.actions[name].params
    for number, param in enumerate(params):
        known = anything(param.type, trusted=True) if args is None else constant(args[number])
        state.values[param.variable] = known
        state.unset.pop(param.variable, None)
    return _called(e, name, [state], leaves)


def _straight(e: Exploration, s: ir.Stmt, state: PathState, leaves: Leaves) -> None:
    """Update the state of one path for a statement, which must not branch or jump.

    If the statement may cause a parser error, the path with the error is added to `leaves`.
    """
    e.paths.steps += 1
    match s:
        case ir.Assign():
            _may_fail(e, s.value, state, leaves)
            _assign(e, s, state)
        case ir.Forget(target, pos=pos):
            place = state.place(target)
            if place is not None:
                state.assign(target, None)
                state.unset[place] = pos
        case ir.SetValidity(header, valid, pos=pos):
            e.reader.indices(header, state)
            if not (valid and state.is_valid(header)):
                state.forget_fields(header, pos if valid else None)
            state.set_valid(header, valid)
        case ir.Shift(stack, count):
            state.shift(stack, count)
        case ir.Skip(stack):
            following = state.following(stack).only
            following = None if following is None else min(stack_size(stack), following + 1)
            state.set_following(stack, following)
        case ir.Advance(bits):
            e.reader.reads(bits, state)
            leaves.stopped.append(state.copy())
        case ir.Emit(header):
            _emit(e, header, s.pos, state)
        case ir.Extern():
            _extern(e, s, state)
        case _:
            raise TypeError(f"{s.pos}: this statement branches or jumps")


def _may_fail(e: Exploration, expr: ir.Expr, state: PathState, leaves: Leaves) -> None:
    """Record in `leaves` that the packet may be too short for a lookahead or ``last`` in an expression."""
    if any(isinstance(part, ir.Lookahead | ir.Last) for part in subexpressions(expr)):
        leaves.stopped.append(state.copy())


def _verify(e: Exploration, s: ir.Verify, states: list[PathState], leaves: Leaves) -> list[PathState]:
    """Return the paths on which the condition of ``verify`` holds; add the other paths to `leaves`."""
    after = []
    for state in states:
        e.reader.reads(s.condition, state)
        _may_fail(e, s.condition, state, leaves)
        for failed in assume(state.copy(), s.condition, False):
            failed.values[PARSER_ERROR] = failed.value(s.error)
            leaves.stopped.append(failed)
        after += assume(state, s.condition, True)
    return after


def _assign(e: Exploration, s: ir.Assign, state: PathState) -> None:
    if isinstance(s.target.type, ir.Struct | ir.Header | ir.Stack):
        source, target = state.place(s.value), state.place(s.target)
        if source is not None and target is not None:
            state.copy_tree(source, target)
        else:
            state.drop(s.target)
        return
    e.reader.indices(s.target, state)
    undefined = None
    if isinstance(s.value, ir.Var | ir.Member):
        e.reader.reads(s.value, state, copied=True)
        undefined = state.unset_at(s.value)
    else:
        e.reader.reads(s.value, state)
    state.assign(s.target, state.value(s.value) if isinstance(s.target.type, ir.Scalar) else None)
    place = state.place(s.target)
    if undefined is not None and place is not None:
        state.unset[place] = undefined


def _extract(e: Exploration, header: ir.Expr, size: ir.Expr | None, state: PathState, leaves: Leaves) -> bool:
    """Apply an extract to the state of one path.

    Return False if `header` is the next element of a full stack: then the extract fails for all packets of
    this path. Otherwise return True.
    """
    if size is not None:
        e.reader.reads(size, state)
    leaves.stopped.append(state.copy())
    if isinstance(header, ir.Next) and _is_full(header.base, state):
        return False
    state.set_valid(header, True)
    state.forget_fields(header, None)
    if isinstance(header, ir.Next):
        following = state.following(header.base).only
        state.set_following(header.base, None if following is None else following + 1)
    return True


def _emit(e: Exploration, header: ir.Expr, pos: ir.Position, state: PathState) -> None:
    for place in headers_below(header.type, state.place(header) or ""):
        below = place + "/"
        for name, since in state.unset.items():
            if name.startswith(below) and state.valid.get(place) is not False:
                e.reader.report(f"{shown(name)} is sent in the packet, but nothing has set it", since)


def _is_full(stack: ir.Expr, state: PathState) -> bool:
    """Return True if a stack certainly has no next element."""
    return state.following(stack).low >= stack_size(stack)


MOST_ROUNDS = 20
"""Maximum number of rounds of a loop to explore. After these rounds, all values count as unknown."""


def _body(
    e: Exploration, body: Iterable[ir.Stmt], states: list[PathState], leaves: Leaves
) -> list[PathState]:
    """Return the paths that reach the end of a body; add paths that leave the body earlier to `leaves`."""
    for statement in body:
        if not states:
            break
        states = _statement(e, statement, states, leaves)
    return states


def _statement(e: Exploration, s: ir.Stmt, states: list[PathState], leaves: Leaves) -> list[PathState]:
    match s:
        case ir.If():
            return _if(e, s, states, leaves)
        case ir.Switch():
            return _switch(e, s, states, leaves)
        case ir.Apply():
            return e.paths.few([after for state in states for after in _apply(e, s, state, leaves)])
        case ir.Call(action=action):
            return _called(e, action, states, leaves)
        case ir.Inlined(body=body):
            return _scope(e, body, states, leaves)
        case ir.Loop():
            return _loop(e, s, states, leaves)
        case ir.Return():
            leaves.returned += states
            return []
        case ir.Exit():
            leaves.exited += states
            return []
        case ir.Break():
            leaves.broken += states
            return []
        case ir.Continue():
            leaves.continued += states
            return []
        case ir.Verify():
            return _verify(e, s, states, leaves)
        case ir.Extract(header, size):
            return [state for state in states if _extract(e, header, size, state, leaves)]
        case _:
            for state in states:
                _straight(e, s, state, leaves)
            return states


def _if(e: Exploration, s: ir.If, states: list[PathState], leaves: Leaves) -> list[PathState]:
    then, otherwise = [], []
    for state in states:
        e.reader.reads(s.condition, state)
        then += assume(state.copy(), s.condition, True)
        otherwise += assume(state, s.condition, False)
    return e.paths.few(_body(e, s.then, then, leaves) + _body(e, s.otherwise, otherwise, leaves))


def _switch(e: Exploration, s: ir.Switch, states: list[PathState], leaves: Leaves) -> list[PathState]:
    after: list[PathState] = []
    for state in states:
        e.reader.reads(s.subject, state)
    for constants, body in s.cases:
        chosen, states = states if not constants else [], states if constants else []
        for constant_ in constants:
            pattern = ir.Pattern("exact", constant_.value)
            found = [matching(state.copy(), [s.subject], [pattern]) for state in states]
            chosen = chosen + [state for state in found if state is not None]
            states = [
                left for state in states for left in not_matching(state, [s.subject], [pattern], split=False)
            ]
        after += _body(e, body, e.paths.few(chosen), leaves)
    return e.paths.few(after + states)


def _scope(
    e: Exploration, body: Sequence[ir.Stmt], states: list[PathState], leaves: Leaves
) -> list[PathState]:
    inner = replace(leaves, returned=[])
    states = _body(e, body, states, inner)
    return e.paths.few(states + inner.returned)


def _called(e: Exploration, action: str, states: list[PathState], leaves: Leaves) -> list[PathState]:
    return _scope(e, e.program.actions[action].body, states, leaves)


def _loop(e: Exploration, s: ir.Loop, states: list[PathState], leaves: Leaves) -> list[PathState]:
    inner = replace(leaves, broken=[], continued=[])
    seen: Seen = set()
    for _ in range(MOST_ROUNDS):
        states = [state for state in states if fresh(seen, state)]
        if not states:
            return e.paths.few(inner.broken)
        states = _round(e, s, states, inner)
    blank = [PathState({}, {}, merged(states).unset)] if states else []
    after = _round(e, s, blank, inner)
    return e.paths.few(inner.broken + after)


def _round(e: Exploration, s: ir.Loop, states: list[PathState], inner: Leaves) -> list[PathState]:
    states = _body(e, s.body, states, inner)
    continuing = states + inner.continued
    inner.continued = []
    return e.paths.few(_body(e, s.update, e.paths.few(continuing, MOST_IN_LOOPS), inner), MOST_IN_LOOPS)


def _parse(e: Exploration) -> list[PathState]:
    """Return the states in which packets leave the parser, with the parser's error as a value."""
    program = e.program
    first = PathState({}, {}, {})
    clear_metadata(program, first)
    for name, type_ in (("hdr", program.hdr), ("meta", program.meta), *program.variables.items()):
        first.valid |= dict.fromkeys(headers_below(type_, name), False)
        stacks = [place for place, part in places_below(type_, name) if isinstance(part, ir.Stack)]
        first.values |= dict.fromkeys(stacks, constant(0))
    accepted: list[PathState] = []
    leaves = Leaves()
    visits: dict[str, int] = {}
    seen: dict[str, Seen] = {}
    work = [("start", first)]
    while work:
        name, state = work.pop()
        if name in ("accept", "reject"):  # neither sets a parser error
            state.values[PARSER_ERROR] = constant(0)
            accepted.append(state)
            continue
        if not fresh(seen.setdefault(name, set()), state):
            continue
        visits[name] = visits.get(name, 0) + 1
        if visits[name] > MOST_STATES:
            state = _widened(e, state)
        work += _parser_state(e, program.states[name], state, leaves)
    for state in leaves.stopped:
        known = state.values.get(PARSER_ERROR, Bounds(1, max(1, len(program.errors.members) - 1)))
        state.values[PARSER_ERROR] = known
    return e.paths.few(accepted + leaves.stopped)


def _widened(e: Exploration, state: PathState) -> PathState:
    """Return a state that covers all later visits of a parser state.

    Of `state`, it keeps the lower bounds of metadata fields and the undefined scalars. All else is unknown.
    """
    kept = {place: value for place, value in state.values.items() if place.startswith("meta/")}
    return PathState(
        {place: Bounds(value.low, 1 << 64) for place, value in kept.items()}, {}, state.unset.copy()
    )


def _parser_state(
    e: Exploration, node: ir.ParserState, state: PathState, leaves: Leaves
) -> list[tuple[str, PathState]]:
    transition = node.transition
    states = _body(e, node.body, [state], leaves)
    following: list[tuple[str, PathState]] = []
    for one in states:
        for subject in transition.subjects:
            e.reader.reads(subject, one)
            _may_fail(e, subject, one, leaves)
        rest = [one]
        for patterns, target in transition.cases:
            matched = [matching(state.copy(), transition.subjects, patterns) for state in rest]
            following += [(target, state) for state in matched if state is not None]
            rest = [
                left
                for state in rest
                for left in not_matching(state, transition.subjects, patterns, split=True)
            ]
        leaves.stopped += rest  # no case matches: error NoMatch
    return following


def clear_metadata(program: ir.Program, state: PathState) -> None:
    """Set user metadata in `state` to zero, except fields that a field list may preserve."""
    kept = {"/".join(path) for paths in program.field_lists.values() for path in paths}
    for place, part in places_below(program.meta, "meta"):
        if isinstance(part, ir.Header):
            state.valid[place] = False
        elif isinstance(part, ir.Scalar) and place not in kept:
            state.values[place] = constant(0)


def find(program: ir.Program) -> list[Finding]:
    """Return the places where a program from `lower` depends on undefined behaviour, in source order."""
    exploration = Exploration(program, Reader(), PathSet())
    _run(exploration)
    found = exploration.reader.found
    return sorted(found, key=lambda it: (it.pos.file, it.pos.line, it.pos.column))


def _run(e: Exploration) -> None:
    """Explore all paths from the parser to the deparser; findings are added to ``e.reader``."""
    program = e.program
    parsed = _parse(e)
    states = _block(e, program.verify, [state.copy() for state in parsed])
    for state in states:
        state.values |= {SPEC: constant(0), GROUP: constant(0)}
    states = _block(e, program.ingress, states)
    leaving = _leaving(e, [_departing(e, state) for state in states if _goes_on(state)])
    if e.clones:
        leaving += _leaving(e, [_departing(e, clone) for clone in _cloned(e, parsed)])
    states = _block(e, program.compute, e.paths.few(leaving))
    _block(e, program.deparser, states)


def _leaving(e: Exploration, states: list[PathState]) -> list[PathState]:
    """Return the states of packets after egress, without dropped packets."""
    states = _block(e, e.program.egress, states)
    return [state for state in states if state.values.get(SPEC) != constant(DROP_PORT)]


def _departing(e: Exploration, state: PathState) -> PathState:
    """Change `state` to a packet's state at the start of egress, and return it.

    All facts about variables and standard metadata are removed. Headers in variables become invalid, and
    ``egress_spec`` becomes 0.
    """
    for facts in state.all_facts():
        for name in [name for name in facts if name.partition("/")[0] not in ("hdr", "meta")]:
            del facts[name]
    for name, type_ in e.program.variables.items():
        state.valid |= dict.fromkeys(headers_below(type_, name), False)
    state.values[SPEC] = constant(0)
    return state


def _block(e: Exploration, body: Sequence[ir.Stmt], states: list[PathState]) -> list[PathState]:
    leaves = Leaves()
    states = _body(e, body, states, leaves)
    return e.paths.few(states + leaves.returned + leaves.exited)


def _cloned(e: Exploration, parsed: Iterable[PathState]) -> list[PathState]:
    """Return the states of clones at the start of egress: as after the parser, with metadata reset."""
    clones = []
    for state in parsed:
        state.drop(ir.Var(e.program.meta, "meta", pos=NOWHERE))
        clear_metadata(e.program, state)
        clones.append(state)
    return clones


def _goes_on(state: PathState) -> bool:
    """Return False if ingress has certainly dropped the packet; else True."""
    return not (state.values.get(SPEC) == constant(DROP_PORT) and state.values.get(GROUP) == constant(0))
