"""Show the figures of two peers that were measured alternately."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import psutil
from rich.console import Console
from rich.table import Table


def processor_s(pid: int) -> float:
    """Return the processor time in seconds that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def show_ratios(
    title: str,
    peers: tuple[str, str],
    values: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    ratio: str = "ratio",
    digits: int = 1,
    ratio_digits: int = 2,
) -> None:
    """Print each figure's median for each peer, and the median, the lowest and the highest ratio of all rounds.

    `values` has the values of all rounds by figure and by peer. A ratio divides the first peer's value by the second's.
    """
    table = Table(title=title)
    for column in ("", *peers, ratio, "range"):
        table.add_column(column, justify="right" if column else "left")
    for figure, by_peer in values.items():
        ratios = [one / other for one, other in zip(*(by_peer[peer] for peer in peers), strict=True)]
        table.add_row(
            figure,
            *(f"{statistics.median(by_peer[peer]):,.{digits}f}" for peer in peers),
            f"{statistics.median(ratios):.{ratio_digits}f} ×",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
        )
    Console(width=140).print(table)
