"""`/metrics`: what is counted, for who may see all of a team."""

from kit.asgi import Visitor
from nodrop.relay.relay import Relay


async def test_an_operator_sees_what_was_counted(stranger: Visitor) -> None:
    requester = stranger.with_headers(authorization="Bearer token-inbox_monitor")
    operator = stranger.with_headers(authorization="Bearer token-me")
    offer = {"to": "code_agent", "title": "x"}
    assert (await requester.request("POST", "/v1/handoffs", json=offer)).status == 201
    told = await operator.request("GET", "/metrics")
    assert told.status == 200
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = told.body.decode().splitlines()
    assert 'nodrop_entries_total{team="default",type="handoff.offered.v1"} 1' in lines
    assert 'nodrop_unfinished_handoffs{team="default",agent="code_agent"} 1' in lines
    size = next(line for line in lines if line.startswith("nodrop_log_size"))
    assert int(size.split()[-1]) >= 1


async def test_nobody_else_does(stranger: Visitor, relay: Relay) -> None:
    requester = stranger.with_headers(authorization="Bearer token-inbox_monitor")
    assert (await stranger.request("GET", "/metrics")).status == 401
    assert (await requester.request("GET", "/metrics")).status == 403
    assert {refusal.operation for refusal in relay.refusals.of("default", limit=9)} == {"metrics"}
