"""Schema cost: count the steps of checking a value against a schema, before the native validator is called.

The validator cannot be interrupted and holds the interpreter. It applies a subschema once for every way that leads to
it: two alternatives that both look into the same property double the work at every level, and references do so
without making the schema longer. So a schema is read into a graph of subschemas, and a value is walked through it once,
with the number of ways that lead to each subschema.

A reference back to a schema that it is part of is decided once for each object or array: the validator remembers those
(jsonschema-rs 0.39 and later), though not while it collects errors, and not where no such reference follows. So what
follows one counts for all ways that lead to it, and the next one again for one.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from nodrop.model.limits import Limits
from nodrop.relay.directory.schema_graph import ExpensiveSchemaError, Graph, Subschema, count_values
from nodrop.relay.directory.schema_loops import in_order, remember_loops

_CHARS_PER_STEP: Final = 8
"""Characters that a pattern of size 1 reads in one step. A step is some 20 ns, measured."""
_UNEVALUATED_STEPS: Final = 4
"""`unevaluated…` applies what stands beside it so many times for the value and for each member."""
_UNEVALUATED_MAX: Final = 256
"""Subschemas beside one `unevaluated…`: each is compared with each."""
_GATHERED_MAX: Final = 50_000
"""Subschemas gathered for one value that were not gathered for values before it."""
_GATHERED_KEPT_MAX: Final = 32_768
"""Gathered sets of subschemas, as they weigh, that are kept from one value of a schema to the next."""
_NODE_WEIGHT: Final = 8
"""A subschema, or a gathered set of them, beside what is in it. One is about 100 bytes."""
_PATTERN_WEIGHT: Final = 512
"""A pattern that the validator keeps compiled."""
_ERROR_BYTES: Final = 16
"""The size of an error, apart from the value it is about."""
_MANY: Final = 1 << 62


_KINDS: Final[dict[type[Any], type[Any]]] = {dict: dict, list: list}

_Counts = tuple[tuple[int, int, int], ...]
"""Subschemas that are applied to one value, how many ways lead to each, and how often it may be applied."""


class _TooManyStepsError(Exception):
    pass


class SchemaCost:
    """The cost of checking values against one schema."""

    def __init__(self, schema: Mapping[str, Any], limits: Limits) -> None:
        """Read a schema.

        Raises:
            ExpensiveSchemaError: it expands to too much for any value.
        """
        graph = Graph(schema)
        self.has_alternatives = graph.has_alternatives
        """Whether errors come with the errors of alternatives."""
        self._limits = limits
        self._nodes = nodes = graph.nodes
        order = in_order(nodes, lambda node: node.beside)
        if isinstance(order, int):
            raise ExpensiveSchemaError(nodes[order].path, "refers to itself for the same value")
        _bound_expansion(nodes, order, limits.schema_expanded_max)
        self.measures = any(node.unique for node in nodes)
        """Whether the cost depends on how large a value is that nothing is applied to."""
        self.counts_members = any(node.unevaluated for node in nodes)
        """Whether the cost of a value depends on how many members it has, apart from theirs."""
        self._everything = None if self.counts_members else self._whole()
        remember_loops(nodes, graph.references)
        order = cast("list[int]", in_order(nodes, lambda node: node.beside))
        self._rank = {index: place for place, index in enumerate(reversed(order))}
        patterns = sum(node.text > 0 or node.name_text > 0 for node in nodes)
        self._own_weight = _NODE_WEIGHT * len(nodes) + _PATTERN_WEIGHT * patterns
        self.weight = self._own_weight
        """How much memory it takes, in units of about 100 bytes; grows as values are checked."""
        self.bytes_at_a_glance = self._bytes_at_a_glance()
        """A value of no more JSON than this takes few enough steps, whatever it is."""
        self._starts: dict[bool, _Applied] = {}

    def steps(self, value: Any, data: bytes) -> int | None:
        """Return a bound on the steps of deciding whether `value`, as JSON `data`, fits.

        None means more than `schema_steps_max`.
        """
        return self._at_a_glance(data) or self._walk(
            value, self._limits.schema_steps_max, remembering=True
        )

    def steps_of_errors(self, value: Any, data: bytes) -> int | None:
        """Return a bound on the steps of finding the first error of `value`; None as for `steps`."""
        return self._at_a_glance(data) or self._walk(
            value, self._limits.schema_steps_max, remembering=False
        )

    def bytes_of_errors(self, value: Any, data: bytes) -> int | None:
        """Return a bound on the bytes of all errors of `value`, each with what it is about.

        None means more than `schema_error_bytes_max`.
        """
        most = self._limits.schema_error_bytes_max
        if len(data) > most:
            return None
        return self._walk(value, most, remembering=False, explaining=True)

    def _at_a_glance(self, data: bytes) -> int | None:
        """Return a bound on the steps that holds for all values as large as this one, if it is low enough."""
        if self._everything is None:
            return None
        each, text = self._everything
        steps = count_values(data) * each + len(data) * text // _CHARS_PER_STEP
        return steps if steps <= self._limits.schema_steps_max else None

    def _bytes_at_a_glance(self) -> int:
        if self._everything is None:
            return -1
        each, text = self._everything
        # Each value but the first comes after a character of its own (`count_values`).
        per_byte = each * _CHARS_PER_STEP + text
        left = (self._limits.schema_steps_max - each) * _CHARS_PER_STEP
        return left // per_byte if per_byte else _MANY

    def _walk(
        self, value: Any, most: int, *, remembering: bool, explaining: bool = False
    ) -> int | None:
        walk = _Walk(self, most, explaining=explaining)
        if self.weight - self._own_weight > _GATHERED_KEPT_MAX:
            self._starts.clear()
            self.weight = self._own_weight
        start = self._starts.get(remembering)
        if start is None:
            start = self._starts[remembering] = _Applied(((0, 1, 1),), remembering=remembering)
        try:
            walk.visit(start, value)
        except (_TooManyStepsError, RecursionError):
            return None
        return most - walk.left

    def _whole(self) -> tuple[int, int] | None:
        """Return the most steps for any one value, and the most of patterns; None if there is a cycle.

        Without a cycle, every way to a subschema applies it to one value at most once. What is for one property
        is not applied to the value of another.
        """
        order = in_order(self._nodes, lambda node: node.below())
        if isinstance(order, int):
            return None
        steps: dict[int, int] = {}
        text: dict[int, int] = {}
        for index in order:
            node = self._nodes[index]
            own = node.steps + node.per_member + 2 * node.unique * self._limits.json_levels_max
            steps[index] = min(own + node.most_of(steps), _MANY)
            text[index] = min(node.text + node.name_text + node.most_of(text), _MANY)
        return steps[0], text[0]

    def gather(self, applied: "_Applied", value: Any) -> "_State":
        """Return everything that is applied to `value`, and keep it."""
        kind = _KINDS.get(cast("Any", type(value)))
        members = len(value) if kind and self.counts_members else 0
        once = applied.remembering and kind is not None
        state = self._gathered(applied.counts, 1 + members if kind else 0, once=once)
        state.remembering = applied.remembering
        applied.states[kind, members] = state
        self.weight += _NODE_WEIGHT + len(state.applied)
        return state

    def _gathered(self, counts: _Counts, again: int, *, once: bool) -> "_State":
        """Follow `counts` to everything that is applied to the same value."""
        state = _State()
        ways: defaultdict[int, int] = defaultdict(int)
        times: defaultdict[int, int] = defaultdict(int)
        waiting: list[tuple[int, int]] = []
        for index, way, time in counts:
            ways[index], times[index] = way, time
            heapq.heappush(waiting, (self._rank[index], index))
        while waiting:
            _, index = heapq.heappop(waiting)
            node, way, time = self._nodes[index], ways[index], times[index]
            state.add(node, way, time)
            if node.remembered and once:
                way, time = 1, way
            if node.unevaluated and again:
                way *= _UNEVALUATED_STEPS * again
                time *= _UNEVALUATED_STEPS * again
            for other in node.beside:
                if other not in ways:
                    heapq.heappush(waiting, (self._rank[other], other))
                ways[other] += way
                times[other] += time
        return state


class _Applied:
    """Subschemas that are applied to one value; `states` adds those beside them, for each kind of value."""

    __slots__ = ("counts", "remembering", "states")

    def __init__(self, counts: _Counts, *, remembering: bool) -> None:
        self.counts = counts
        self.remembering = remembering
        self.states: dict[tuple[type[Any] | None, int], _State] = {}


class _State:
    """Everything that is applied to one value."""

    def __init__(self) -> None:
        self.steps = self.per_member = self.text = self.name_text = self.unique = 0
        self.applied: list[tuple[Subschema, int, int]] = []
        self.remembering = False
        self._named: set[str] = set()
        self._prefix = 0
        self._next: dict[str | int | None, _Applied] = {}

    def add(self, node: Subschema, ways: int, times: int) -> None:
        """Apply `node` too."""
        self.steps += times * node.steps
        self.per_member += times * node.per_member
        self.text += times * node.text
        self.name_text += times * node.name_text
        self.unique += times * node.unique
        self.applied.append((node, ways, times))
        self._named.update(node.named)
        self._prefix = max(self._prefix, len(node.prefix))

    def property(self, name: str) -> _Applied:
        """Return what is applied to the value of a property."""
        label = name if name in self._named else None
        applied = self._next.get(label)
        if applied is None:
            counts = _summed(
                (
                    ways,
                    times,
                    [
                        *node.every,
                        *(node.others if label is None else node.named.get(label, node.others)),
                    ],
                )
                for node, ways, times in self.applied
            )
            applied = self._next[label] = _Applied(counts, remembering=self.remembering)
        return applied

    def item(self, place: int) -> _Applied:
        """Return what is applied to an item."""
        label = min(place, self._prefix)
        applied = self._next.get(label)
        if applied is None:
            counts = _summed(
                (ways, times, [*node.each, *(node.prefix[label : label + 1] or [node.items])[0]])
                for node, ways, times in self.applied
            )
            applied = self._next[label] = _Applied(counts, remembering=self.remembering)
        return applied


class _Walk:
    """One visit of a value: `left` is what remains of the steps, or of the bytes if it is explained."""

    def __init__(self, cost: SchemaCost, most: int, *, explaining: bool) -> None:
        self._cost = cost
        self._counts_members = cost.counts_members
        self._explaining = explaining
        self._measures = explaining or cost.measures
        self._gathered = 0
        self.left = most

    def visit(self, applied: _Applied, value: Any) -> int:
        """Count the steps for a value; return how large it is, if that matters."""
        if not (applied.counts or self._measures):
            return 1
        kind = _KINDS.get(cast("Any", type(value)))
        members = len(value) if kind and self._counts_members else 0
        state = applied.states.get((kind, members)) or self._gather(applied, value)
        size, steps = 1, state.steps
        if kind is dict:
            steps += state.per_member * len(value)
            if state.name_text:
                steps += state.name_text * sum(map(len, value)) // _CHARS_PER_STEP
            self._spend(steps)
            for name, member in value.items():
                size += self.visit(state.property(name), member)
                if self._explaining:
                    size += len(name)
        elif kind is list:
            self._spend(steps)
            for place, item in enumerate(value):
                size += self.visit(state.item(place), item)
            self._spend(2 * state.unique * size)
        else:
            if isinstance(value, str):
                steps += state.text * len(value) // _CHARS_PER_STEP
                size += len(value) if self._explaining else len(value) // 64
            self.left -= steps
            if self.left < 0:
                raise _TooManyStepsError
        if self._explaining:
            self._spend(state.steps * (_ERROR_BYTES + size))
        return size

    def _gather(self, applied: _Applied, value: Any) -> _State:
        state = self._cost.gather(applied, value)
        self._gathered += len(state.applied)
        if self._gathered > _GATHERED_MAX:
            raise _TooManyStepsError
        return state

    def _spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _TooManyStepsError


def _bound_expansion(nodes: list[Subschema], order: Iterable[int], most: int) -> None:
    """Bound what is applied to one value, and add what is applied to names of properties."""
    size: dict[int, int] = {}
    text: dict[int, int] = {}
    for index in order:
        node = nodes[index]
        below = sum(size[other] for other in node.beside)
        if node.unevaluated and below > _UNEVALUATED_MAX:
            message = f"more than {_UNEVALUATED_MAX} subschemas beside unevaluated… for one value"
            raise ExpensiveSchemaError(node.path, message)
        size[index] = 1 + below * (_UNEVALUATED_STEPS if node.unevaluated else 1)
        if size[index] > most:
            message = f"expands to more than {most} subschemas for one value"
            raise ExpensiveSchemaError(node.path, message)
        text[index] = node.text + sum(text[other] for other in node.beside)
    for node in nodes:
        node.per_member += sum(size[other] for other in node.names)
        node.name_text += sum(text[other] for other in node.names)


def _summed(applied: Iterable[tuple[int, int, list[int]]]) -> _Counts:
    counts: dict[int, tuple[int, int]] = {}
    for ways, times, others in applied:
        for other in others:
            before = counts.get(other, (0, 0))
            counts[other] = before[0] + ways, before[1] + times
    return tuple((index, *counts[index]) for index in sorted(counts))
