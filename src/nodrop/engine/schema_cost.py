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
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from nodrop.core.limits import Limits

_CHARS_PER_STEP: Final = 8
"""Characters that a pattern of size 1 reads in one step. A step is some 20 ns, measured."""
_COMPARISON_STEPS: Final = 8
"""Steps to compare a value with one value of an `enum` that has several types."""
_PATTERN_STEPS: Final = 3
"""Steps to match one name with one pattern, apart from its length."""
_UNEVALUATED_STEPS: Final = 4
"""`unevaluated…` applies what stands beside it so many times for the value and for each member."""
_UNEVALUATED_MAX: Final = 256
"""Subschemas beside one `unevaluated…`: each is compared with each."""
_GATHERED_MAX: Final = 50_000
"""Subschemas gathered for one value that were not gathered for values before it."""
_STATES_MAX: Final = 4_096
"""Gathered sets of subschemas that are kept for one schema."""
_ERROR_BYTES: Final = 16
"""What an error takes, apart from what it is about."""
_LOOPS_MAX: Final = 16
"""Cycles within cycles that are looked for."""
_MANY: Final = 1 << 62

_MEMBER_WORDS: Final = frozenset(
    [
        *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
        *("dependentRequired", "dependentSchemas", "dependencies"),
    ]
)
_REPETITION: Final = re.compile(r"\{(\d{0,9})(?:,(\d{0,9}))?\}")

_KINDS: Final[dict[type[Any], type[Any]]] = {dict: dict, list: list}

_Counts = tuple[tuple[int, int, int], ...]
"""Subschemas that are applied to one value, how many ways lead to each, and how often it may be applied."""


class ExpensiveSchemaError(ValueError):
    """Nothing may be checked against the schema; `path` leads to the subschema that is at fault."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class _TooManyStepsError(Exception):
    pass


class SchemaCost:
    """The cost of checking values against one schema."""

    def __init__(self, schema: Mapping[str, Any], limits: Limits) -> None:
        """Read a schema.

        Raises:
            ExpensiveSchemaError: it expands to too much for any value.
        """
        graph = _Graph(schema)
        self.has_alternatives = graph.has_alternatives
        """Whether errors come with the errors of alternatives."""
        self._limits = limits
        self._nodes = nodes = graph.nodes
        order = _order(nodes, lambda node: node.beside)
        if isinstance(order, int):
            raise ExpensiveSchemaError(nodes[order].path, "refers to itself for the same value")
        _bound_expansion(nodes, order, limits.schema_expanded_max)
        self.measures = any(node.unique for node in nodes)
        """Whether the cost depends on how large a value is that nothing is applied to."""
        self.counts_members = any(node.unevaluated for node in nodes)
        """Whether the cost of a value depends on how many members it has, apart from theirs."""
        self._everything = None if self.counts_members else self._whole()
        _remember_loops(nodes, graph.references)
        order = cast("list[int]", _order(nodes, lambda node: node.beside))
        self._rank = {index: place for place, index in enumerate(reversed(order))}
        self._states = 0
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
        steps = _values(data) * each + len(data) * text // _CHARS_PER_STEP
        return steps if steps <= self._limits.schema_steps_max else None

    def _walk(
        self, value: Any, most: int, *, remembering: bool, explaining: bool = False
    ) -> int | None:
        walk = _Walk(self, most, explaining=explaining)
        if self._states > _STATES_MAX:
            self._starts.clear()
            self._states = 0
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
        order = _order(self._nodes, lambda node: node.below())
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
        self._states += 1
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


class _Subschema:
    """One subschema: its own cost, and which others are applied to what."""

    __slots__ = (
        *("beside", "each", "every", "items", "name_text", "named", "names", "others", "path"),
        *("per_member", "prefix", "remembered", "steps", "text", "unevaluated", "unique"),
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.steps = 1
        self.per_member = 0
        """Steps for each property of an object, apart from those for its value."""
        self.text = 0
        """The size of the patterns that a string is matched with."""
        self.name_text = 0
        """The same for the names of properties."""
        self.unique = 0
        self.unevaluated = False
        self.remembered = False
        """Stands for the one beside it, which is then applied once to each object and array."""
        self.beside: list[int] = []
        """Applied to the same value."""
        self.named: dict[str, list[int]] = {}
        self.others: list[int] = []
        """For properties that are not in `named`."""
        self.every: list[int] = []
        """For every property."""
        self.prefix: list[list[int]] = []
        self.items: list[int] = []
        """For items after `prefix`."""
        self.each: list[int] = []
        """For every item."""
        self.names: list[int] = []
        """For the names of properties."""

    def most_of(self, costs: Mapping[int, int]) -> int:
        """Return what others cost any one value."""
        together = (self.beside, self.others, self.every, self.items, self.each, self.names)
        apart = (self.named.values(), self.prefix)
        return sum(costs[other] for others in together for other in others) + sum(
            max((costs[other] for others in either for other in others), default=0)
            for either in apart
        )

    def edges(self) -> Iterator[list[int]]:
        yield from (self.beside, self.others, self.every, self.items, self.each, self.names)
        yield from self.named.values()
        yield from self.prefix

    def below(self) -> Iterator[int]:
        for others in self.edges():
            yield from others


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
        self.applied: list[tuple[_Subschema, int, int]] = []
        self.remembering = False
        self._named: set[str] = set()
        self._prefix = 0
        self._next: dict[str | int | None, _Applied] = {}

    def add(self, node: _Subschema, ways: int, times: int) -> None:
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


class _Graph:
    """The subschemas of a schema; the first is the whole."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.nodes: list[_Subschema] = []
        self.references: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        """The references that lead from one subschema to another, as they are written."""
        self.has_alternatives = False
        self._known: dict[int, int] = {}
        self._resources: dict[str, Any] = {"": schema}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: defaultdict[str, list[Any]] = defaultdict(list)
        self._waiting: list[tuple[int, str, str]] = []
        """References that are still to be followed, and from where."""
        self._waiting_dynamic: list[tuple[int, str]] = []
        try:
            self._read(schema, "", "")
            while self._waiting or self._waiting_dynamic:
                self._follow()
        except ValueError as error:
            if isinstance(error, ExpensiveSchemaError):
                raise
            raise ExpensiveSchemaError("", f"a reference cannot be read: {error}") from None

    def _read(self, schema: Any, path: str, base: str) -> int:
        known = self._known.get(id(schema))
        if known is not None:
            return known
        index = self._known[id(schema)] = len(self.nodes)
        node = _Subschema(path)
        self.nodes.append(node)
        if isinstance(schema, dict):
            words = cast("dict[str, Any]", schema)
            base = self._identify(words, base)
            self._weigh(node, words)
            self._read_same_value(node, words, base)
            self._read_members(node, words, base)
            self._read_items(node, words, base)
            self._refer(index, words, base)
            for word in ("$defs", "definitions"):
                for name, other in _mapping(words.get(word)).items():
                    self._read(other, f"{path}.{word}.{name}", base)
        return index

    def _identify(self, words: dict[str, Any], base: str) -> str:
        said = words.get("$id")
        if isinstance(said, str):
            base = urldefrag(urljoin(base, said)).url
            self._resources[base] = words
        for word in ("$anchor", "$dynamicAnchor"):
            name = words.get(word)
            if isinstance(name, str):
                self._anchors[base, name] = words
                if word == "$dynamicAnchor":
                    self._dynamic[name].append(words)
        return base

    def _weigh(self, node: _Subschema, words: dict[str, Any]) -> None:
        node.steps += _comparisons(words.get("enum")) + _comparisons([words.get("const")])
        for word in ("dependentRequired", "dependencies"):
            for names in _mapping(words.get(word)).values():
                node.steps += 1 + len(_sequence(names))
        node.per_member = int(not _MEMBER_WORDS.isdisjoint(words))
        patterns = _mapping(words.get("patternProperties"))
        node.per_member += _PATTERN_STEPS * len(patterns)
        node.name_text = sum(map(_pattern_size, patterns))
        node.text = ("minLength" in words) + ("maxLength" in words)
        if isinstance(words.get("pattern"), str):
            node.text += _pattern_size(words["pattern"])
        node.unique = int(words.get("uniqueItems") is True)
        node.unevaluated = "unevaluatedProperties" in words or "unevaluatedItems" in words

    def _read_same_value(self, node: _Subschema, words: dict[str, Any], base: str) -> None:
        for word in ("allOf", "anyOf", "oneOf"):
            for place, other in enumerate(_sequence(words.get(word))):
                node.beside.append(self._read(other, f"{node.path}.{word}[{place}]", base))
        for word in ("not", "if", "then", "else"):
            node.beside += self._one(node, words, word, base)
        for word in ("dependentSchemas", "dependencies"):
            for name, other in _mapping(words.get(word)).items():
                node.beside.append(self._read(other, f"{node.path}.{word}.{name}", base))
        self.has_alternatives |= "anyOf" in words or "oneOf" in words

    def _read_members(self, node: _Subschema, words: dict[str, Any], base: str) -> None:
        for name, other in _mapping(words.get("properties")).items():
            node.named[name] = [self._read(other, f"{node.path}.properties.{name}", base)]
        for pattern, other in _mapping(words.get("patternProperties")).items():
            path = f"{node.path}.patternProperties.{pattern}"
            node.every.append(self._read(other, path, base))  # which names match is not looked at
        node.every += self._one(node, words, "unevaluatedProperties", base)
        node.others += self._one(node, words, "additionalProperties", base)
        node.names += self._one(node, words, "propertyNames", base)

    def _read_items(self, node: _Subschema, words: dict[str, Any], base: str) -> None:
        for word in ("prefixItems", "items"):  # `items` was a list before 2020
            for place, other in enumerate(_sequence(words.get(word))):
                node.prefix.append([self._read(other, f"{node.path}.{word}[{place}]", base)])
        if not isinstance(words.get("items"), list):
            node.items += self._one(node, words, "items", base)
        node.items += self._one(node, words, "additionalItems", base)
        node.each += self._one(node, words, "contains", base)
        node.each += self._one(node, words, "unevaluatedItems", base)

    def _one(self, node: _Subschema, words: dict[str, Any], word: str, base: str) -> list[int]:
        return [self._read(words[word], f"{node.path}.{word}", base)] if word in words else []

    def _refer(self, index: int, words: dict[str, Any], base: str) -> None:
        reference, dynamic = words.get("$ref"), words.get("$dynamicRef")
        if isinstance(reference, str):
            self._waiting.append((index, reference, base))
        if isinstance(dynamic, str):
            self._waiting.append((index, dynamic, base))
            self._waiting_dynamic.append((index, dynamic.rpartition("#")[2]))
        if "$recursiveRef" in words:
            raise ExpensiveSchemaError(self.nodes[index].path, "$recursiveRef is not followed")

    def _follow(self) -> None:
        waiting, self._waiting = self._waiting, []
        for index, reference, base in waiting:
            found = self._found(reference, base)
            if found is None:
                message = f"{reference[:100]!r} leads out of the schema"
                raise ExpensiveSchemaError(self.nodes[index].path, message)
            other = self._read(found[0], f" {reference[:100]}", found[1])
            self.nodes[index].beside.append(other)
            self.references[index, other].add(reference)
        if self._waiting:
            return  # another anchor may be read
        dynamic, self._waiting_dynamic = self._waiting_dynamic, []
        for index, name in dynamic:
            for schema in self._dynamic[name]:
                other = self._known[id(schema)]
                if other not in self.nodes[index].beside:
                    self.nodes[index].beside.append(other)
                self.references[index, other].add("")  # which of them it means depends on the way

    def _found(self, reference: str, base: str) -> tuple[Any, str] | None:
        """Return what a reference leads to, and the base of references in there."""
        address, fragment = urldefrag(urljoin(base, reference))
        if address not in self._resources:
            return None
        name = unquote(fragment)
        found: Any = self._resources[address]
        if name and not name.startswith("/"):
            found = self._anchors.get((address, name))
            return None if found is None else (found, address)
        for step in name.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = cast("dict[str, Any]", found)[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):  # pyright: ignore[reportUnknownArgumentType]  # of anything
                found = cast("list[Any]", found)[int(key)]
            else:
                return None
            said = cast("dict[str, Any]", found).get("$id") if isinstance(found, dict) else None
            address = urldefrag(urljoin(address, said)).url if isinstance(said, str) else address
        return cast("Any", found), address


def _bound_expansion(nodes: list[_Subschema], order: Iterable[int], most: int) -> None:
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


def _remember_loops(
    nodes: list[_Subschema], references: Mapping[tuple[int, int], set[str]]
) -> None:
    """Mark the references that the validator decides once for each value.

    They are those back to where a cycle is entered, if it is entered in one place only: wherever the validator
    comes from, it has begun with that one and not ended when it comes to the reference.
    """
    among: set[int] = set(_reached(nodes, (0,), None))
    everything = frozenset(among)
    for _ in range(_LOOPS_MAX):
        component = _components(nodes, among)
        entries: defaultdict[int, set[int]] = defaultdict(set)
        inside: defaultdict[int, list[int]] = defaultdict(list)
        back: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        entries[component.get(0, -1)].add(0)
        for index in everything:
            for other in nodes[index].below():
                place = component.get(other)
                if place is not None and component.get(index) == place:
                    back[place].append((index, other))
                elif place is not None:
                    entries[place].add(other)
        for index, place in component.items():
            inside[place].append(index)
        among = set[int]()
        for place, edges in back.items():
            if len(entries[place]) != 1:
                continue
            (header,) = entries[place]
            sources = [index for index, other in edges if other == header]
            said = [references.get((index, header), {""}) for index in sources]
            if not said or any(text != said[0] or len(text) != 1 or "" in text for text in said):
                continue
            _redirect(nodes, sources, header)
            among.update(index for index in inside[place] if index != header)
        if not among:
            return


def _redirect(nodes: list[_Subschema], sources: Iterable[int], header: int) -> None:
    stand_in = _Subschema(nodes[header].path)
    stand_in.remembered = True
    stand_in.beside = [header]
    place = len(nodes)
    nodes.append(stand_in)
    for index in set(sources):
        for others in nodes[index].edges():
            others[:] = [place if other == header else other for other in others]


def _order(
    nodes: Sequence[_Subschema], below: Callable[[_Subschema], Iterable[int]]
) -> list[int] | int:
    """Return every subschema after those below it; or one that is below itself."""
    order: list[int] = []
    done: dict[int, bool] = {}
    for start in range(len(nodes)):
        if start in done:
            continue
        done[start] = False
        path = [(start, iter(below(nodes[start])))]
        while path:
            index, others = path[-1]
            other = next(others, None)
            if other is None:
                done[index] = True
                order.append(index)
                path.pop()
            elif other not in done:
                done[other] = False
                path.append((other, iter(below(nodes[other]))))
            elif not done[other]:
                return other
    return order


def _reached(
    nodes: Sequence[_Subschema], starts: Iterable[int], among: set[int] | None
) -> list[int]:
    """Return what is reached from `starts`, each after everything that is reached from it first."""
    order: list[int] = []
    seen: set[int] = set()
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, nodes[start].below())]
        while path:
            index, others = path[-1]
            other = next(others, None)
            if other is None:
                order.append(index)
                path.pop()
            elif other not in seen and (among is None or other in among):
                seen.add(other)
                path.append((other, nodes[other].below()))
    return order


def _components(nodes: Sequence[_Subschema], among: set[int]) -> dict[int, int]:
    """Return the cycles among some subschemas: for each that is on one, a number for all on the same."""
    above: defaultdict[int, list[int]] = defaultdict(list)
    for index in among:
        for other in nodes[index].below():
            above[other].append(index)
    component: dict[int, int] = {}
    seen: set[int] = set()
    for start in reversed(_reached(nodes, sorted(among), among)):
        if start in seen:
            continue
        seen.add(start)
        together, waiting = [start], [start]
        while waiting:
            for other in above[waiting.pop()]:
                if other in among and other not in seen:
                    seen.add(other)
                    together.append(other)
                    waiting.append(other)
        if len(together) > 1 or start in nodes[start].below():
            component |= dict.fromkeys(together, start)
    return component


def _summed(applied: Iterable[tuple[int, int, list[int]]]) -> _Counts:
    counts: dict[int, tuple[int, int]] = {}
    for ways, times, others in applied:
        for other in others:
            before = counts.get(other, (0, 0))
            counts[other] = before[0] + ways, before[1] + times
    return tuple((index, *counts[index]) for index in sorted(counts))


def _values(data: bytes) -> int:
    """Return a bound on the values in JSON: each is the first, or follows a comma or a bracket."""
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{")


def _comparisons(allowed: Any) -> int:
    """Return the steps to find a value among those that are allowed; scalars of one type are looked up."""
    values = _sequence(allowed)
    kinds: set[Any] = {type(value) for value in values}
    if len(kinds) <= 1 and not kinds & {dict, list}:
        return 0
    return _COMPARISON_STEPS * _values(msgspec.json.encode(values))


def _pattern_size(pattern: str) -> int:
    """Return the length of a pattern with its repetitions written out."""
    sizes, last, place = [0], 0, 0
    while place < len(pattern):
        sign = pattern[place]
        repeated = _REPETITION.match(pattern, place) if sign == "{" else None
        if repeated is not None:
            times = int(repeated[2] or repeated[1] or 1)
            sizes[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
            place = repeated.end()
            continue
        if sign == "(":
            sizes.append(0)
            last = 0
        elif sign == ")" and len(sizes) > 1:
            last = sizes.pop() + 1
            sizes[-1] += last
        else:
            last = 1
            sizes[-1] += 1
        place = _after(pattern, place)
    return sum(sizes)


def _after(pattern: str, place: int) -> int:
    """Return where the sign at `place` ends: a class in brackets is one."""
    if pattern[place] == "\\":
        return place + 2
    if pattern[place] != "[":
        return place + 1
    place += 2  # a bracket that comes first closes nothing
    while place < len(pattern) and pattern[place] != "]":
        place += 2 if pattern[place] == "\\" else 1
    return place + 1


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _sequence(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
