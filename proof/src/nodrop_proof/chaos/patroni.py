"""The PostgreSQL primary and its Patroni are killed with -9 under load; etcd and the other one decide.

As when a machine is lost. Nobody promotes anything by hand: relays have both addresses, wait until
one of them takes writes, and go on. Then the machine comes back, and its Patroni makes it a standby.

Needs Debian's packages `patroni` and `etcd-server`, which bring a PostgreSQL, or the like on the
path. Without control of its own: that a primary which answers alone loses something, `failover` shows.
"""

from collections.abc import Callable

from nodrop_proof.chaos.failover import kill_primaries
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report
from nodrop_proof.kit.patroni_cluster import PatroniCluster


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Kill the primary `plan.count` times, under `plan.nodes` relays."""
    async with PatroniCluster() as cluster:
        return await kill_primaries(cluster, plan, progress)
