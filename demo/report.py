"""What the demo shows: a progress bar while it runs, a table at the end."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from .job import Outcome
from .verify import FlightCheck


class ProgressReport:
    """An Observer for people: two bars and a line per event; `with ProgressReport(console, rows) as observer`."""

    def __init__(self, console: Console, rows: int) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._fed: TaskID = self._bars.add_task("produced to flights", total=rows)
        self._done: TaskID = self._bars.add_task("transformed and committed", total=rows)

    def __enter__(self) -> ProgressReport:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def progress(self, fed: int, done: int) -> None:
        self._bars.update(self._fed, completed=fed)
        self._bars.update(self._done, completed=done)

    def event(self, text: str) -> None:
        self._bars.console.print(f"  {text}", highlight=False)


def _mark(count: int) -> str:
    return f"[red]{count:,}[/red]" if count else "0"


def _flight_row(table: Table, check: FlightCheck) -> None:
    table.add_row(
        check.topic,
        f"{check.expected:,}",
        f"{check.records:,}",
        _mark(check.lost),
        _mark(check.doubled),
        _mark(check.altered),
        _mark(check.out_of_order),
        "[green]exactly once[/green]" if check.exact else "[red]WRONG[/red]",
    )


def show(console: Console, outcome: Outcome) -> None:
    """Print the table that compares what a read_committed reader saw with the plain computation, and the verdict.

    Columns: flights computed and read; of these lost, found twice, altered, or jumped out of their aircraft's order.
    """
    table = Table(
        title="What a read_committed reader sees, against a plain in-memory computation",
        box=SIMPLE_HEAD,
        padding=0,
    )
    table.add_column("topic", no_wrap=True)
    for column in ("computed", "read", "lost", "twice", "altered", "jumped"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    _flight_row(table, outcome.flights)
    _flight_row(table, outcome.enriched)
    computed = sum(count.flights for count in outcome.carriers.expected.values())
    counted = sum(count.flights for count in outcome.carriers.found.values())
    wrong = outcome.carriers.differing
    table.add_row(
        "carrier-delays",
        f"{computed:,}",
        f"{counted:,}",
        "–",
        "–",
        _mark(len(wrong)),
        "–",
        "[green]counts equal[/green]" if outcome.carriers.exact else f"[red]WRONG: {', '.join(wrong)}[/red]",
    )
    console.print(table)
    for check in (outcome.flights, outcome.enriched):
        if check.first_fault:
            console.print(f"First fault: {check.first_fault}", style="red", highlight=False)
    console.print(
        f"{len(outcome.kills)} kill -9 on the way. {outcome.aborted:,} records of aborted transactions lie in"
        f" flights-enriched: a read_committed reader never sees them. The job took {outcome.seconds:.1f} s.",
        highlight=False,
    )
