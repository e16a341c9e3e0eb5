import pytest

from nodrop.protocol.addresses import is_public


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "2002:5db8:d822::1", "64:ff9b::5db8:d822"]
)
def test_what_anybody_can_reach_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "224.0.1.1", "240.0.0.1", "0.0.0.0"),  # noqa: S104  # not to listen on
        *("::1", "fe80::1%eth0", "fd00::1", "ff0e::1"),
        *(
            "::ffff:127.0.0.1",
            "2002:7f00:1::",
            "2002:0a01:0203::",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::7f00:1",
        ),
    ],
)
def test_what_only_some_can_reach_is_not_in_any_spelling(address: str) -> None:
    assert not is_public(address)


def test_a_name_is_no_address() -> None:
    with pytest.raises(ValueError, match="localhost"):
        is_public("localhost")
