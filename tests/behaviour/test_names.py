"""Names that people or file systems take for the same are refused; so are those that mean no agent."""

from typing import Any

import pytest

from nodrop.model.errors import InvalidRequestError, LimitReachedError, NameTakenError


@pytest.mark.parametrize("name", ["Code_Agent", "code_agent.", "CODE_AGENT..", "Me", "me."])
async def test_a_name_that_differs_only_in_case_or_a_dot_is_taken(office: Any, name: str) -> None:
    await office.join("code_agent")
    me = await office.person()
    other = "me" if name.casefold().startswith("me") else "code_agent"
    asked: list[dict[str, Any]] = [
        {"operation": "create_token", "agent": name},
        {"operation": "register", "named": name, "manifest": {"agent_id": name}},
        {"operation": "create_invitation", "agent": name},
    ]
    for fields in asked:
        with pytest.raises(NameTakenError) as refused:
            await me(fields.pop("operation"), **fields)
        assert other in refused.value.detail
    assert (await me("create_token", agent="code_agent"))["agent"] == "code_agent", "its own"


@pytest.mark.parametrize("name", ["operator", "System", "team", "ALL", "relay", "Relay.", "nodrop"])
async def test_a_name_that_means_no_agent_is_reserved(office: Any, name: str) -> None:
    me = await office.person()
    with pytest.raises(InvalidRequestError) as refused:
        await me("create_token", agent=name)
    assert (refused.value.code, refused.value.errors[0].path) == ("invalid_request", "agent")
    assert name in refused.value.detail


async def test_other_names_are_as_good_as_before(office: Any) -> None:
    me = await office.person()
    for name in ("bob", "bob.smith", "bobby", "team-lead", "all_hands", "me2"):
        assert (await me("create_token", agent=name))["agent"] == name


async def test_an_agent_makes_so_many_tokens_for_itself_and_no_more(office: Any) -> None:
    agent, me = await office.join("minter"), await office.person()
    made = [await agent("create_token", agent="minter") for _ in range(99)]  # it came with one
    with pytest.raises(LimitReachedError) as refused:
        await agent("create_token", agent="minter")
    assert "Revoke" in refused.value.next_step
    assert (await me("create_token", agent="minter"))["agent"] == "minter", "an operator may"
    for token in made[:2]:
        await agent("revoke_token", named=token["token_id"])
    await agent("create_token", agent="minter")


async def test_tokens_come_in_pages(office: Any) -> None:
    agent = await office.join("minter")
    made = {(await agent("create_token", agent="minter"))["token_id"] for _ in range(6)}
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await agent("list_tokens", limit=3, **after)
        assert len(page["tokens"]) <= 3
        seen += [token["token_id"] for token in page["tokens"]]
        if page["after"] is None:
            break
        after = {"after": page["after"]}
    assert len(seen) == len(set(seen)) == 7, "six, and the one that it came with"
    assert made <= set(seen)
