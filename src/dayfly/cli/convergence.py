"""What `dayfly profile --convergence` found, as a table for a person."""

from __future__ import annotations

from rich.console import Console

from dayfly.cli.outcome import narrow_table
from dayfly.planning.efficiency import Convergence, Efficiency


def show_convergence(found: Convergence, console: Console) -> None:
    """Prints what methods and batch sizes take to the target, S(B), and what all runs cost.

    Args:
        found: of a profile.
        console: on which it is printed.
    """
    title = f"samples to the validation loss {found.target_loss:.4g}, which bsp reaches in "
    table = narrow_table(f"{title}{found.epochs} epochs with each seed")
    for head in ("method", "batch", "reached", "epochs", "samples", "90%"):
        table.add_column(head, justify="left" if head == "method" else "right")
    for one in found.measured:
        table.add_row(
            one.method,
            str(one.batch_size),
            f"{one.reached} of {len(one.curves)}",
            _epochs(one),
            f"x {one.samples:.3g}" if one.samples is not None else f"> x {one.low or 1:.3g}",
            "" if one.high is None else f"{one.low:.3g} to {one.high:.3g}",
        )
    console.print(table)
    for line in lines(found):
        console.print(line, highlight=False, soft_wrap=True)


def _epochs(one: Efficiency) -> str:
    known = [curve.epochs for curve in one.curves if curve.epochs is not None]
    if one.samples is not None:
        return f"{sum(known) / len(known):.3g}"
    return f"> {min(len(curve.losses) for curve in one.curves if curve.epochs is None)}"


def lines(found: Convergence) -> list[str]:
    """Returns the sentences below the table.

    Args:
        found: of a profile.
    """
    said = []
    if found.fit is not None:
        noise = "infinite" if found.fit.noise is None else f"{found.fit.noise:.3g} samples"
        sizes = [one for one in found.measured if one.method == "bsp" and one.samples is not None]
        off = f", within {found.fit.error:.1%} of what was measured" if len(sizes) > 2 else ""
        said.append(
            f"steps to it at batch size B are S_min (1 + B_noise / B): B_noise is {noise}{off}"
        )
    if any(one.batch_size > found.batch_size for one in found.measured):
        said.append(
            f"the largest batch that converges as well, within {found.tolerance:.0%} of the "
            f"samples: {found.largest_batch}"
        )
    said += [f"left out: {name}: {why}" for name, why in found.left_out.items()]
    runs = sum(len(one.curves) for one in found.measured)
    said.append(
        f"{runs} short runs took {found.took_s:.0f} s: {found.billed_s:.0f} s billed, "
        f"${found.cost_usd:.6f} as on {found.price_list}"
    )
    return said
