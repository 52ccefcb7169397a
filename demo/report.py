"""Show the demo on a terminal: progress bars while it runs, and a table of results at the end."""

from __future__ import annotations

import time

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from .job import Outcome
from .pipeline_half import DelaysOutcome
from .verify import FlightCheck
from .verify_delays import HoursCheck, ListCheck


class ProgressReport:
    """An Observer that prints to a terminal: `with ProgressReport(console, rows) as observer`.

    It shows a progress bar for each step, and a line for each event, with the seconds since the start.
    """

    def __init__(self, console: Console, rows: int, *, pipeline: bool = False) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._fed: TaskID = self._bars.add_task("produced to flights", total=rows)
        self._done: TaskID = self._bars.add_task("transformed and committed", total=rows)
        self._piped: TaskID | None = None
        self._begun = time.monotonic()
        if pipeline:
            self._piped = self._bars.add_task("through the pipeline on Spark", total=rows, start=False)

    def __enter__(self) -> ProgressReport:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def progress(self, fed: int, done: int) -> None:
        self._bars.update(self._fed, completed=fed)
        self._bars.update(self._done, completed=done)

    def pipeline(self, done: int) -> None:
        if self._piped is not None:
            self._bars.start_task(self._piped)
            self._bars.update(self._piped, completed=done)

    def event(self, text: str) -> None:
        self._bars.console.print(f"{time.monotonic() - self._begun:6.1f} s  {text}", highlight=False, markup=False)


def _mark(count: int) -> str:
    return f"[red]{count:,}[/red]" if count else "0"


def _row(
    table: Table,
    check: FlightCheck | HoursCheck | ListCheck,
    read: int,
    verdict: str = "exactly once",
) -> None:
    jumped = check.out_of_order if isinstance(check, FlightCheck) else None
    table.add_row(
        check.topic,
        f"{check.expected:,}",
        f"{read:,}",
        _mark(check.lost),
        _mark(check.doubled),
        _mark(check.altered),
        "–" if jumped is None else _mark(jumped),
        f"[green]{verdict}[/green]" if check.exact else "[red]WRONG[/red]",
    )


def _delays_rows(table: Table, delays: DelaysOutcome) -> None:
    table.add_section()
    _row(table, delays.cleaned, delays.cleaned.records)
    _row(table, delays.parquet, delays.parquet.records)
    _row(table, delays.hours, delays.hours.counted, "hours equal")
    _row(table, delays.latest, delays.latest.records, "list equal")


def show(console: Console, outcome: Outcome, skipped: str = "") -> None:
    """Print the table that compares the records of a read_committed reader with the expected results, and the verdict.

    The table's columns are the numbers of flights that were computed, read, lost, read twice, altered, and read in the
    wrong order for their aircraft. For `airport-hours`, the flights in the last value of each hour are counted. For
    `latest-airports`, airports are counted instead of flights. In the column `altered`, carriers are counted for
    `carrier-delays`, and hours for `airport-hours`. `skipped` is the reason why the second half was not run.
    """
    table = Table(
        title="What a read_committed reader sees, compared with an in-memory computation",
        box=SIMPLE_HEAD,
        padding=0,
    )
    table.add_column("topic", no_wrap=True)
    for column in ("computed", "read", "lost", "twice", "altered", "jumped"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    _row(table, outcome.flights, outcome.flights.records)
    _row(table, outcome.enriched, outcome.enriched.records)
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
    delays = outcome.delays
    if delays is not None:
        _delays_rows(table, delays)
    elif skipped:
        table.add_section()
        table.add_row("pipeline on Spark", *["–"] * 6, "[yellow]skipped[/yellow]")
    console.print(table)
    for check in (outcome.flights, outcome.enriched, *(delays.checks if delays is not None else ())):
        if check.first_fault:
            console.print(f"First fault: {check.first_fault}", style="red", highlight=False)
    console.print(
        f"{len(outcome.kills)} processes were killed. {outcome.aborted:,} records of aborted transactions are in"
        f" flights-enriched: a read_committed reader never sees them. The job took {outcome.seconds:.1f} s.",
        highlight=False,
    )
    if delays is not None:
        console.print(
            f"The pipeline on Spark: {len(delays.kills)} processes killed, {delays.aborted:,} records of aborted"
            f" transactions in flights-cleaned, {delays.left_files:,} Parquet files of interrupted batches that no"
            f" reader sees, {delays.late:,} rows too late for the watermark. It took {delays.seconds:.1f} s.",
            highlight=False,
        )
    elif skipped:
        console.print(f"The second half, a pipeline on Spark, is skipped: {skipped}", style="yellow", highlight=False)
