"""What `make performance` measured, as the tables and plots of docs/performance.md."""

from __future__ import annotations

import platform
import textwrap
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

WIDE: Final = 50
"""Costs that differ by a larger factor are drawn on a logarithmic axis."""


@dataclass(slots=True)
class Figure:
    """One plot: named lines of points over the same x, all in the same unit."""

    name: str
    unit: str
    lines: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, line: str, x: int, value: float) -> None:
        self.lines.setdefault(line, []).append((x, value))


@dataclass(slots=True)
class Growth:
    """What is increased, from where to where, and what was measured. `reading` says what makes each line bend."""

    title: str
    file: str
    over: str
    reading: str
    figures: list[Figure]


INTRODUCTION: Final = """# How cost grows

<!-- written by `make performance` -->

What a request, the memory and a start cost when there is more of everything. `make bench` compares with Apache Kafka,
`make stalls` shows how long others wait; here each plot changes one number and keeps the rest.

Times are processor time of the broker's process, measured from outside: a client on the same machine sends requests of
its own making over TCP, {ahead} ahead, and the least of {rounds} rounds counts. Durability is `os`.

The axis of what grows is logarithmic. That of the cost begins at 0; only where costs differ by more than a factor of
{wide}, it is logarithmic, too.

Machine: {machine}. Python {python}, oncelog {version}.
"""


def page(growths: list[Growth], ahead: int, rounds: int) -> str:
    """Return the whole page. `ahead`: requests under way at a time. `rounds`: of which the least cost counts."""
    memory = psutil.virtual_memory().total / 2**30
    machine = (
        f"{psutil.cpu_count()} processors, {memory:.0f} GiB, {platform.system()} {platform.release().split('-')[0]}"
    )
    parts = [
        INTRODUCTION.format(
            ahead=ahead,
            rounds=rounds,
            wide=WIDE,
            machine=machine,
            python=platform.python_version(),
            version=version("oncelog"),
        )
    ]
    for growth in growths:
        parts.append(f"\n## {growth.title}\n\n![{growth.title}](performance/{growth.file}.svg)\n\n{table(growth)}")
        parts.append(f"\n{textwrap.fill(growth.reading, 120)}\n")
    return "".join(parts)


def table(growth: Growth) -> str:
    """Return the values as a table, one row for each x."""
    columns = [(figure, line) for figure in growth.figures for line in figure.lines]
    heads = [f"{figure.name}: {line}, {figure.unit}" for figure, line in columns]
    rows = [f"| {growth.over} | {' | '.join(heads)} |", "|" + "---:|" * (1 + len(heads))]
    for row, (x, _) in enumerate(columns[0][0].lines[columns[0][1]]):
        values = [shown(figure.lines[line][row][1]) for figure, line in columns]
        rows.append(f"| {x:,} | {' | '.join(values)} |")
    return "\n".join(rows) + "\n"


def shown(value: float) -> str:
    """Return a value with three digits, or more where it is larger."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw(growth: Growth, directory: Path) -> None:
    """Write the plots as one SVG file into `directory`, which is made."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "oncelog", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    from matplotlib import pyplot

    columns = len(growth.figures)
    drawing, axes = pyplot.subplots(1, columns, figsize=(3.6 * columns, 3), squeeze=False, layout="constrained")
    for axis, figure in zip(axes[0], growth.figures, strict=True):
        for name, points in figure.lines.items():
            axis.plot([x for x, _ in points], [value for _, value in points], marker="o", markersize=3, label=name)
        values = [value for points in figure.lines.values() for _, value in points]
        wide = max(values) > WIDE * min(values)
        axis.set(xscale="log", yscale="log" if wide else "linear", ylim=None if wide else (0, max(values) * 1.1))
        axis.set(xlabel=growth.over, ylabel=figure.unit, title=figure.name)
        if len(figure.lines) > 1:
            axis.legend(frameon=False)
    directory.mkdir(exist_ok=True)
    drawing.savefig(directory / f"{growth.file}.svg", metadata={"Date": None})
    pyplot.close(drawing)
