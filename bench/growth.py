"""Write the results of `make performance` as the tables and plots of docs/performance.md."""

from __future__ import annotations

import platform
import textwrap
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

WIDE: Final = 50
"""If the costs of a plot differ by more than this factor, their axis is logarithmic."""


@dataclass(slots=True)
class Figure:
    """A plot of named lines. Each line has (x, value) points; all lines have the same x values and the same unit."""

    name: str
    unit: str
    lines: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, line: str, x: int, value: float) -> None:
        """Add a point to the line with this name."""
        self.lines.setdefault(line, []).append((x, value))


@dataclass(slots=True)
class Growth:
    """The plots of one section, in which one number grows. `over` names this number; `reading` explains the plots."""

    title: str
    file: str
    over: str
    reading: str
    figures: list[Figure]


INTRODUCTION: Final = """# How cost grows

<!-- written by `make performance` -->

This page shows how the cost of a request, the use of memory and the time of a start grow with the load. In each plot,
one number grows, and all others stay constant. `make bench` compares oncelog with Apache Kafka, and `make stalls` shows
how long a small request waits while the broker does something large.

Times are processor time of the broker's process, measured from outside. A client on the same machine sends {ahead}
requests over TCP before it reads their responses. Each value is the lowest of {rounds} rounds, and still varies from
run to run. With the setting `durability=os`, the broker does not wait for the disk.

The horizontal axis is always logarithmic. The vertical axis is linear and begins at 0, unless the costs differ by more
than a factor of {wide}: then it is logarithmic.

Machine: {machine}. Python {python}, oncelog {version}.
"""


def page(growths: list[Growth], ahead: int, rounds: int) -> str:
    """Return the Markdown of the page. `ahead` requests are sent at a time; `rounds` are measured for each value."""
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
    """Return the values of a section as a Markdown table with one row for each x."""
    columns = [(figure, line) for figure in growth.figures for line in figure.lines]
    heads = [f"{figure.name}: {line}, {figure.unit}" for figure, line in columns]
    rows = [f"| {growth.over} | {' | '.join(heads)} |", "|" + "---:|" * (1 + len(heads))]
    for row, (x, _) in enumerate(columns[0][0].lines[columns[0][1]]):
        values = [shown(figure.lines[line][row][1]) for figure, line in columns]
        rows.append(f"| {x:,} | {' | '.join(values)} |")
    return "\n".join(rows) + "\n"


def shown(value: float) -> str:
    """Return a value as text with three digits, or with more digits if it is 1,000 or larger."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw(growth: Growth, directory: Path) -> None:
    """Write the plots of a section as one SVG file into `directory`, which is created if necessary."""
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
