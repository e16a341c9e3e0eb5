"""Schema graph: the subschemas of a schema, what each costs by itself, and which others it applies to what."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

_COMPARISON_STEPS: Final = 8
"""Steps to compare a value with one value of an `enum` that has several types."""
_PATTERN_STEPS: Final = 3
"""Steps to match one name with one pattern, apart from its length."""
_MEMBER_WORDS: Final = frozenset(
    [
        *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
        *("dependentRequired", "dependentSchemas", "dependencies"),
    ]
)
_REPETITION: Final = re.compile(r"\{(\d{0,9})(?:,(\d{0,9}))?\}")


class ExpensiveSchemaError(ValueError):
    """Nothing may be checked against the schema; `path` leads to the subschema that is at fault."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class Subschema:
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
        """Yield the lists of others, each of which may be changed."""
        yield from (self.beside, self.others, self.every, self.items, self.each, self.names)
        yield from self.named.values()
        yield from self.prefix

    def below(self) -> Iterator[int]:
        """Yield every other that is applied to anything."""
        for others in self.edges():
            yield from others


class Graph:
    """The subschemas of a schema; the first is the whole."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.nodes: list[Subschema] = []
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
        node = Subschema(path)
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

    def _weigh(self, node: Subschema, words: dict[str, Any]) -> None:
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

    def _read_same_value(self, node: Subschema, words: dict[str, Any], base: str) -> None:
        for word in ("allOf", "anyOf", "oneOf"):
            for place, other in enumerate(_sequence(words.get(word))):
                node.beside.append(self._read(other, f"{node.path}.{word}[{place}]", base))
        for word in ("not", "if", "then", "else"):
            node.beside += self._one(node, words, word, base)
        for word in ("dependentSchemas", "dependencies"):
            for name, other in _mapping(words.get(word)).items():
                node.beside.append(self._read(other, f"{node.path}.{word}.{name}", base))
        self.has_alternatives |= "anyOf" in words or "oneOf" in words

    def _read_members(self, node: Subschema, words: dict[str, Any], base: str) -> None:
        for name, other in _mapping(words.get("properties")).items():
            node.named[name] = [self._read(other, f"{node.path}.properties.{name}", base)]
        for pattern, other in _mapping(words.get("patternProperties")).items():
            path = f"{node.path}.patternProperties.{pattern}"
            node.every.append(self._read(other, path, base))  # which names match is not looked at
        node.every += self._one(node, words, "unevaluatedProperties", base)
        node.others += self._one(node, words, "additionalProperties", base)
        node.names += self._one(node, words, "propertyNames", base)

    def _read_items(self, node: Subschema, words: dict[str, Any], base: str) -> None:
        for word in ("prefixItems", "items"):  # `items` was a list before 2020
            for place, other in enumerate(_sequence(words.get(word))):
                node.prefix.append([self._read(other, f"{node.path}.{word}[{place}]", base)])
        if not isinstance(words.get("items"), list):
            node.items += self._one(node, words, "items", base)
        node.items += self._one(node, words, "additionalItems", base)
        node.each += self._one(node, words, "contains", base)
        node.each += self._one(node, words, "unevaluatedItems", base)

    def _one(self, node: Subschema, words: dict[str, Any], word: str, base: str) -> list[int]:
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


def count_values(data: bytes) -> int:
    """Return a bound on the values in JSON: each is the first, or follows a comma or a bracket."""
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{")


def _comparisons(allowed: Any) -> int:
    """Return the steps to find a value among those that are allowed; scalars of one type are looked up."""
    values = _sequence(allowed)
    kinds: set[Any] = {type(value) for value in values}
    if len(kinds) <= 1 and not kinds & {dict, list}:
        return 0
    return _COMPARISON_STEPS * count_values(msgspec.json.encode(values))


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
