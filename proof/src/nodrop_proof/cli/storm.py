"""`nodrop prove storm`: the retry storm with and without the budget, second by second."""

import typer

from nodrop.wire.errors import EXIT_FAILED


def storm() -> None:
    """Show what an outage does to retries; exit 1 unless the work goes on after it."""
    from nodrop_proof import storm as proof  # noqa: PLC0415  # the relay: for this verb only

    plan = proof.Storm()
    print(f"{plan.agents} agents, {plan.offered:g} handoffs/s, capacity {plan.capacity:g}/s")
    curves = {name: proof.run(plan, budget=name == "budget") for name in ("budget", "no budget")}
    print("second   " + "".join(f"{name:>24}" for name in curves) + "   (goodput, calls/s)")
    for second in range(len(curves["budget"].offered)):
        away = "away" if plan.before <= second < plan.back_at else ""
        shown = "".join(
            f"{c.goodput(second, second + 1):>16.2f}{c.calls[second]:>8}" for c in curves.values()
        )
        print(f"{second:>4} {away:4}{shown}")
    window = (plan.back_at + 10, plan.back_at + 30)
    back = {name: curve.goodput(*window) for name, curve in curves.items()}
    shares = ", ".join(f"{name}: {share:.2f}" for name, share in back.items())
    print(f"10 to 30 s after the outage, goodput with {shares}")
    if back["budget"] < proof.GOOD or back["no budget"] > proof.BAD:
        raise typer.Exit(EXIT_FAILED)
