"""The control's relay: `nodrop` with the bounds taken away that keep an adversary from others' time and memory."""

from msgspec.structs import replace

from nodrop.core import limits

limits.DEFAULT = replace(  # before anything has read it
    limits.DEFAULT,
    schema_expanded_max=2**60,
    schema_steps_max=2**60,
    page_bytes_max=2**40,
    reads_per_agent_max=1_000_000,
    costly_percent=99,
    outgoing_bytes_max=2**40,
    outgoing_bytes_per_agent_max=2**40,
    outgoing_bytes_per_relay_max=2**40,
    connections_max=1_000_000,
    connections_per_agent_max=1_000_000,
)

if __name__ == "__main__":
    from nodrop.cli import main  # reads the bounds

    main()
