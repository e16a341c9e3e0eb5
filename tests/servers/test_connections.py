"""Open connections: who is closed when there are too many, and what the log says of it."""

import logging

import pytest
from msgspec.structs import replace

from nodrop.model.errors import QueueFullError
from nodrop.model.limits import DEFAULT
from nodrop.servers.listener.connections import Connections


class Socket:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def room_for(most: int, *, per_agent: int = 2) -> Connections:
    limits = replace(DEFAULT, connections_max=most, connections_per_agent_max=per_agent)
    return Connections(limits)


def connected(connections: Connections, count: int) -> list[Socket]:
    sockets = [Socket() for _ in range(count)]
    for socket in sockets:
        connections.made(socket)
    return sockets


def closed(sockets: list[Socket]) -> list[int]:
    return [number for number, socket in enumerate(sockets) if socket.aborted]


def test_the_oldest_without_a_token_is_closed_first() -> None:
    connections = room_for(4)
    sockets = connected(connections, 4)
    connections.prove(sockets[0], "team", "alice")
    assert closed(sockets) == []
    sockets += connected(connections, 2)
    assert closed(sockets) == [1, 2]
    assert len(connections) == 4


def test_one_that_is_idle_is_closed_before_one_that_is_served() -> None:
    connections = room_for(3)
    sockets = connected(connections, 3)
    connections.begin(sockets[0])
    connections.begin(sockets[1])
    connections.end(sockets[1])
    sockets += connected(connections, 2)
    assert closed(sockets) == [1, 2]
    for socket in sockets[3:]:
        connections.begin(socket)
    sockets += connected(connections, 1)
    assert closed(sockets) == [0, 1, 2]


def test_with_a_token_it_is_never_closed_and_a_newcomer_may_show_one() -> None:
    connections = room_for(2, per_agent=1)
    sockets = connected(connections, 2)
    for socket, agent in zip(sockets, ("alice", "bob"), strict=True):
        connections.prove(socket, "team", agent)
    [newcomer] = connected(connections, 1)
    assert not newcomer.aborted
    with pytest.raises(QueueFullError, match="2 connections to this relay are open"):
        connections.prove(newcomer, "team", "carol")
    connections.lost(sockets[0])
    connections.prove(newcomer, "team", "carol")
    assert connections.proven(newcomer)
    assert closed(sockets) == []


def test_newcomers_are_bounded_where_all_others_have_a_token() -> None:
    connections = room_for(2, per_agent=1)
    for socket, agent in zip(connected(connections, 2), ("alice", "bob"), strict=True):
        connections.prove(socket, "team", agent)
    sockets = connected(connections, 1_000)
    assert len(closed(sockets)) == 999
    assert not sockets[-1].aborted
    assert len(connections) == 3


def test_one_agent_has_so_many_and_half_of_all_at_most() -> None:
    connections = room_for(100, per_agent=2)
    sockets = connected(connections, 3)
    for socket in sockets[:2]:
        connections.prove(socket, "team", "alice")
    with pytest.raises(QueueFullError, match="2 connections of alice are open") as refused:
        connections.prove(sockets[2], "team", "alice")
    assert refused.value.retryable
    connections.prove(sockets[2], "elsewhere", "alice")
    connections.lost(sockets[0])
    connections.prove(sockets[2], "team", "alice")
    assert room_for(10, per_agent=1_000).per_agent == 5


def test_connections_leave_descriptors_for_everything_else() -> None:
    few = Connections(DEFAULT, descriptors=512)
    assert few.most == 448
    assert few.backlog == 32
    many = Connections(DEFAULT, descriptors=65_536)
    assert many.most == DEFAULT.connections_max
    assert Connections(DEFAULT, descriptors=16).most == 1


def test_the_log_has_a_line_when_it_begins_and_one_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections = room_for(10)
    with caplog.at_level(logging.WARNING):
        sockets = connected(connections, 500)
        assert len(caplog.records) == 1
        assert "room for 10" in caplog.text
        for socket in sockets:
            connections.lost(socket)
    assert len(caplog.records) == 2
    assert "490 were closed to make room" in caplog.text
