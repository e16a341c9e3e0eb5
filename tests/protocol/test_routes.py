import pytest

from nodrop.model.errors import InvalidRequestError, NotFoundError
from nodrop.model.limits import DEFAULT
from nodrop.protocol import requests
from nodrop.protocol.operations import OPERATIONS
from nodrop.protocol.routes import ROUTES, find


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda o: o.name)
def test_every_operation_is_found_by_its_method_and_path(operation: object) -> None:
    assert isinstance(operation, type(OPERATIONS["offer"]))
    found = find(operation.path.format(id="a%2Fb", name="n%20n"))
    assert found.methods[operation.method].operation is operation
    assert found.reference == ("a/b" if "{id}" in operation.path else None)
    assert found.name == ("n n" if "{name}" in operation.path else None)


@pytest.mark.parametrize(
    "path", ["", "x", "handoffs/", "handoffs//ack", "handoffs/a/b/c", "inbox/take/x", "trace/%ff"]
)
def test_any_other_path_leads_nowhere(path: str) -> None:
    with pytest.raises(NotFoundError):
        find(path)


def test_a_request_is_exactly_the_struct_of_its_operation() -> None:
    for name, body in [("step", b'{"value": 1}'), ("remove_agent", b""), ("settle", b"")]:
        request = ROUTES[name].from_body(body, name="n", command_id="c", limits=DEFAULT)
        assert type(request) is OPERATIONS[name].request


def test_the_name_in_the_path_goes_where_the_request_has_it() -> None:
    def read(name: str, body: bytes = b"") -> requests.Request:
        return ROUTES[name].from_body(body, name="n", command_id=None, limits=DEFAULT)

    assert read("step") == requests.Step(name="n")
    assert read("remove_agent") == requests.RemoveAgent(agent="n")
    assert read("revoke_token") == requests.RevokeToken(token_id="n")
    assert read("remove_agent", b'{"agent": "n"}') == requests.RemoveAgent(agent="n")
    with pytest.raises(InvalidRequestError) as refused:
        read("remove_agent", b'{"agent": "other"}')
    assert [p.path for p in refused.value.errors] == ["agent"]
