"""`nodrop prove storm`: the retry storm with and without the budget, second by second."""

from typing import Annotated

import typer

from nodrop.protocol.errors import EXIT_FAILED


def storm(
    *,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="From how many agents on a storm keeps itself going.")
    ] = False,
) -> None:
    """Show what an outage does to retries; exit 1 unless the work goes on after it."""
    from nodrop_proof import storm as proof  # noqa: PLC0415  # the relay: for this verb only

    if sweep:
        _sweep()
        return
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


def _sweep() -> None:
    """Show the threshold; exit 1 unless it is where the formula has it."""
    from nodrop_proof import storm as proof  # noqa: PLC0415  # the relay: for this verb only

    plan = proof.SWEPT
    print(
        f"capacity {plan.capacity:g}/s, {proof.PER_AGENT:g} handoffs/s per agent, "
        f"{plan.attempts_max} attempts: a storm can last from "
        f"{proof.threshold(plan):g} agents on"
    )
    print(f"goodput {plan.after - 5 - proof.LOOK_SECONDS} to {plan.after - 5} s after the outage")
    print(f"{'agents':>8}{'retries x load / capacity':>28}{'no budget':>12}{'budget':>10}")
    good = True
    for agents in proof.SWEPT_AGENTS:
        row = proof.sweep(agents)
        good = good and row.as_predicted
        unlike = "" if row.as_predicted else "   NOT AS PREDICTED"
        print(f"{agents:>8}{row.pressure:>28.2f}{row.without:>12.2f}{row.budget:>10.2f}{unlike}")
    if not good:
        raise typer.Exit(EXIT_FAILED)
