"""The contract of what a relay knows besides handoffs: teams, agents, tokens, processes, keys."""

from typing import Any

from msgspec.structs import replace

from nodrop.log.port import Changes, KeyUse, Process, Record, Store, Team, Token, Wanted
from nodrop.model.contract import Agent, Availability, Capability, Manifest
from nodrop.protocol.entries import Head
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import SENDER, TEAM, handoff_id
from nodrop.testing.store_contract.setting import DIGEST_KEYS, OTHER_TEAM, Setting, commit, load

PROCESS = Process(team=TEAM, id="p1", agent="code_agent", heartbeat_ms=10_000, seen_at=T0)
TOKEN = Token(
    team=TEAM, id="t1", secret_sha256="0" * 64, agent="code_agent", role="agent", created_at=T0
)


class DirectoryContract(Setting):
    """Teams and who is in them."""

    # --- teams ---

    async def test_a_team_is_created_once(self, store: Store) -> None:
        """The second time returns the first, whose digests would not hold with another key."""
        first = Team(id="new", digest_key=b"first" * 6, created_at=T0)
        second = Team(id="new", digest_key=b"second" * 5, created_at=T0 + 1)
        assert await store.create_team(first) == first
        assert await store.create_team(second) == first
        assert {team.id: team.digest_key for team in await store.teams()} == {
            **DIGEST_KEYS,
            "new": b"first" * 6,
        }

    async def test_a_team_that_does_not_exist_is_empty(self, store: Store) -> None:
        """Nothing there, and nothing to learn from an error."""
        assert await store.head("nobody") == Head()
        assert await store.horizon("nobody") is None
        assert await store.agents("nobody") == []
        assert await store.queue("nobody", "a") == {}

    # --- agents ---

    async def test_a_manifest_is_kept_byte_for_byte(self, store: Store) -> None:
        """As it was sent, whatever its spaces and order; and read as the relay read it."""
        sent = b'{ "capabilities" : [ ],\n  "agent_id": "\xc3\xa4" }'
        agent = _agent("code_agent", version=1, description="Investigates bugs")
        await commit(store, Changes(agents=[(agent, sent)]))
        assert await store.agents(TEAM) == [(agent, sent)]
        assert await store.manifest(TEAM, "code_agent", 1) == sent
        assert await store.agents(OTHER_TEAM) == []
        assert await store.manifest(OTHER_TEAM, "code_agent", 1) is None

    async def test_every_version_of_a_manifest_is_kept(self, store: Store) -> None:
        """The agent shows the last; a handoff may be pinned to an earlier one."""
        for version in (1, 2, 3):
            agent = _agent("code_agent", version=version)
            await commit(store, Changes(agents=[(agent, f"v{version}".encode())]))
        assert await store.agents(TEAM) == [(_agent("code_agent", version=3), b"v3")]
        sent = [await store.manifest(TEAM, "code_agent", version) for version in (1, 2, 3, 4)]
        assert sent == [b"v1", b"v2", b"v3", None]

    async def test_a_removed_agent_is_still_known(self, store: Store) -> None:
        """With its manifest: its handoffs refer to it."""
        agent = _agent("code_agent", version=1)
        await commit(store, Changes(agents=[(agent, b"{}"), (_agent("b", version=0), b"")]))
        removed = replace(agent, removed_at=T0 + 1)
        await commit(store, Changes(agents=[(removed, b"{}")]))
        found = {known.id: (known, sent) for known, sent in await store.agents(TEAM)}
        assert found == {"code_agent": (removed, b"{}"), "b": (_agent("b", version=0), b"")}

    # --- tokens ---

    async def test_tokens_are_kept_and_revoked(self, store: Store) -> None:
        """Every token of every team, with what was last said of it."""
        other = replace(TOKEN, team=OTHER_TEAM, label="laptop", role="operator")
        await commit(store, Changes(tokens=[TOKEN, other]))
        await commit(store, Changes(tokens=[replace(TOKEN, revoked_at=T0 + 9)]))
        tokens = await store.tokens()
        assert {token.team: token for token in tokens} == {
            TEAM: replace(TOKEN, revoked_at=T0 + 9),
            OTHER_TEAM: other,
        }
        assert len(tokens) == 2
        assert await store.tokens(OTHER_TEAM) == [other]
        assert await store.tokens("nobody") == []

    # --- processes ---

    async def test_a_process_is_known_by_its_last_sign_of_life(self, store: Store) -> None:
        """Until it is gone; another team's of the same id is another one."""
        twin = replace(PROCESS, team=OTHER_TEAM, agent="other")
        await commit(store, Changes(processes=[PROCESS, twin]))
        seen = replace(PROCESS, seen_at=T0 + 5_000, heartbeat_ms=1_000)
        await commit(store, Changes(processes=[seen]))
        assert sorted(await store.processes(), key=lambda p: p.team) == [seen, twin]
        await commit(store, Changes(processes_gone=[(TEAM, "p1"), (TEAM, "never seen")]))
        assert await store.processes() == [twin]

    # --- records ---

    async def test_a_record_is_what_was_last_written_under_its_name(self, store: Store) -> None:
        """Until it is gone; of one kind and of another, here and in another team."""
        key = Record(team=TEAM, kind="key", id="k1", json=b'{"a": 1}')
        others = [replace(key, kind="policy"), replace(key, team=OTHER_TEAM)]
        await commit(store, Changes(records=[key, *others]))
        changed = replace(key, json=b'{"a":2}')
        await commit(store, Changes(records=[changed]))
        assert sorted(await store.records("key"), key=lambda r: r.team) == [changed, others[1]]
        gone = [(TEAM, "key", "k1"), (TEAM, "key", "never there")]
        await commit(store, Changes(records_gone=gone))
        assert await store.records("key") == [others[1]]
        assert await store.records("policy") == [others[0]]

    async def test_records_are_found_by_how_their_ids_begin(self, store: Store) -> None:
        """In one team; what comes right before or after them is not among them."""
        names = ("a", "a/", "a/1", "a/é\U0010fffe", "a0", "b/1")
        records = [Record(team=TEAM, kind="hook", id=name, json=b"{}") for name in names]
        elsewhere = [replace(records[2], team=OTHER_TEAM), replace(records[2], kind="key")]
        await commit(store, Changes(records=[*records, *elsewhere]))
        assert await store.records("hook", of=(TEAM, "a/")) == records[1:4]
        assert await store.records("hook", of=(OTHER_TEAM, "a/")) == [elsewhere[0]]
        assert await store.records("hook", of=(TEAM, "c")) == []
        assert len(await store.records("hook")) == len(names) + 1

    # --- idempotency keys ---

    async def test_a_key_tells_what_it_was_used_for(self, store: Store) -> None:
        """For the sender who used it, in its team."""
        use = KeyUse(team=TEAM, sender=SENDER, key="k", handoff_id=handoff_id(1), digest="d1")
        await commit(store, Changes(keys=[use]))
        keys = frozenset({(TEAM, SENDER, "k"), (TEAM, "x", "k"), (OTHER_TEAM, SENDER, "k")})
        loaded = await load(store, Wanted(keys=keys))
        assert loaded.keys == {(TEAM, SENDER, "k"): use}

    async def test_a_key_goes_over_to_the_successor(self, store: Store) -> None:
        """A redriven handoff's key and reference are its successor's."""
        use = KeyUse(team=TEAM, sender=SENDER, key="k", handoff_id=handoff_id(1), digest="d1")
        await commit(store, Changes(keys=[use]))
        await commit(store, Changes(keys=[replace(use, handoff_id=handoff_id(2))]))
        loaded = await load(store, Wanted(keys=frozenset({(TEAM, SENDER, "k")})))
        assert loaded.keys[TEAM, SENDER, "k"].handoff_id == handoff_id(2)
        assert await store.resolve(TEAM, f"{SENDER}/k") == [handoff_id(2)]


def _agent(name: str, *, version: int, **manifest: Any) -> Agent:
    capability = Capability(
        name="bug_triage",
        input_schema={"query": "string", "depth": {"type": ["integer", "null"], "maximum": 1.5}},
        timeout_seconds=300,
        reliability_sla=0.95,
    )
    return Agent(
        team=TEAM,
        id=name,
        version=version,
        manifest=Manifest(
            agent_id=name,
            capabilities=(capability,),
            availability=Availability(mode="always"),
            **manifest,
        ),
        registered_at=T0,
    )
