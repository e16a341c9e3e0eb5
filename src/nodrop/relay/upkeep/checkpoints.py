"""Checkpoints: size and head of a team's log, signed by the relay, to be kept elsewhere."""

from nodrop.log.port import Store
from nodrop.protocol import canonical, views
from nodrop.protocol.entries import Head
from nodrop.protocol.times import format_time
from nodrop.relay.ports import Clock, Signer


async def checkpoint(
    store: Store, team: str, *, clock: Clock, signer: Signer
) -> views.CheckpointAnswer:
    """Return where a team's log ends now."""
    return signed(team, await store.head(team), at=clock.now(), signer=signer)


def signed(team: str, head: Head, *, at: int, signer: Signer) -> views.CheckpointAnswer:
    """Return a checkpoint of a log that ended at `head`."""
    stated = {"team": team, "size": head.seq, "head": head.hash, "at": at}
    return views.CheckpointAnswer(
        team=team,
        size=head.seq,
        head=head.hash,
        at=format_time(at),
        public_key=signer.public_key,
        signature=signer.sign(canonical.dumps(stated)),
    )
