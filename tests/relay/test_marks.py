"""Marks: fields of an offer that it is listed by, declared by their names alone."""

from typing import Any

import msgspec
import pytest

from nodrop.log.port import Page
from nodrop.model.errors import InvalidRequestError
from nodrop.protocol import requests as r
from nodrop.protocol import showing, views
from nodrop.protocol.bodies import Content
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.handoffs import offered, story, terms
from nodrop_proof.kit.faulty import FaultyStore

ME = Caller(team="default", agent="requester")
FIELD = "correlation_id"
"""A field that offers, lists and views have: declared to be a mark, to see what that alone does."""


@pytest.mark.parametrize("shape", [r.Offer, r.ListHandoffs, views.HandoffView, views.TaskView])
def test_every_mark_is_a_field_of_offers_lists_and_views(shape: type[msgspec.Struct]) -> None:
    assert {*r.MARKS, FIELD} <= set(shape.__struct_fields__)


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r, "MARKS", (FIELD,))


async def listed(relay: Relay, **wanted: Any) -> list[str]:
    answer: Any = (await relay.call(ME, "list_handoffs", r.ListHandoffs(**wanted))).answer
    return [handoff.title for handoff in answer.handoffs]


@pytest.mark.usefixtures("marked")
async def test_an_offer_is_listed_by_its_marks(relay: Relay, store: FaultyStore) -> None:
    for title, mark in (("a", "x"), ("b", "y"), ("c", None), ("d", "x")):
        offer = r.Offer(to="worker", title=title, priority="low", correlation_id=mark)
        await relay.call(ME, "offer", offer)
    assert await listed(relay, correlation_id="x") == ["d", "a"]
    assert await listed(relay, correlation_id="unheard-of") == []
    assert len(await listed(relay)) == 4
    found = await store.list_handoffs(Page(team=ME.team, marks=(f"{FIELD}=x",), limit=10))
    assert [handoff.terms.marks for handoff in found] == [(f"{FIELD}=x",)] * 2


@pytest.mark.usefixtures("marked")
async def test_what_is_no_name_is_no_mark(relay: Relay) -> None:
    offer = r.Offer(to="worker", priority="low", correlation_id="a\nb")
    with pytest.raises(InvalidRequestError):
        await relay.call(ME, "offer", offer)
    with pytest.raises(InvalidRequestError) as refused:
        await listed(relay, correlation_id="a\nb")
    assert [problem.path for problem in refused.value.errors] == [FIELD]


@pytest.mark.usefixtures("marked")
def test_marks_are_shown_by_name_and_those_of_a_later_version_are_not() -> None:
    handoff = story(offered(terms=terms(marks=(f"{FIELD}=a=b", "later=x")))).handoff
    assert showing.lasting_view(handoff, Content()).correlation_id == "a=b"
    assert showing.task_view(handoff, Content()).correlation_id == "a=b"
