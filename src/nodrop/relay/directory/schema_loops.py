"""Schema loops: the order of subschemas, and the references that the validator decides once for each value."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from nodrop.relay.directory.schema_graph import Subschema

_LOOPS_MAX: Final = 16
"""Cycles within cycles that are looked for."""


def remember_loops(nodes: list[Subschema], references: Mapping[tuple[int, int], set[str]]) -> None:
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


def _redirect(nodes: list[Subschema], sources: Iterable[int], header: int) -> None:
    stand_in = Subschema(nodes[header].path)
    stand_in.remembered = True
    stand_in.beside = [header]
    place = len(nodes)
    nodes.append(stand_in)
    for index in set(sources):
        for others in nodes[index].edges():
            others[:] = [place if other == header else other for other in others]


def in_order(
    nodes: Sequence[Subschema], below: Callable[[Subschema], Iterable[int]]
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
    nodes: Sequence[Subschema], starts: Iterable[int], among: set[int] | None
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


def _components(nodes: Sequence[Subschema], among: set[int]) -> dict[int, int]:
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
