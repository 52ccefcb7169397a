"""Define `oncelog pipeline`: run jobs on Spark, with exactly-once delivery from topics to topics."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .stop_signals import stop_signals

if TYPE_CHECKING:
    from ..pipeline.jobs.progress import Progress


@click.group(short_help="Run data pipelines on Spark.")
def pipeline() -> None:
    """Run data pipelines on Spark, with exactly-once delivery from topics to topics.

    A job file defines one pipeline: its sources, its transforms in SQL or Python, and its sinks. The commands need Java
    17 or newer, and an extra: pip install 'oncelog[pipeline]'.
    """


@pipeline.command(short_help="Run a job file.")
@click.argument("job", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print schemas and plan, but read and write no records.")
@click.option(
    "--master", metavar="URL", help="Spark master to use instead of the job file's: local[4], spark://host:7077, …"
)
@click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="Value of ${NAME} in the job file; may be repeated."
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus at this address.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print progress as one JSON object per batch.")
@click.option("--debug", is_flag=True, help="Print Spark's log, and errors with their stack traces.")
def run(
    job: Path,
    dry_run: bool,
    master: str | None,
    variables: tuple[str, ...],
    metrics: str | None,
    quiet: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Run a job until it ends, or until SIGTERM, SIGINT or SIGHUP.

    With trigger = "available-now", the job ends when it has processed the records that its sources had at the start.

    \b
    oncelog pipeline run flights.toml --dry-run
    oncelog pipeline run flights.toml --var BOOTSTRAP=127.0.0.1:9092
    oncelog pipeline run flights.toml --master spark://10.0.0.5:7077

    A failed query is restarted from its checkpoint. The job file limits the restarts: at most max_restarts
    within restart_window. docs/pipeline.md describes job files. Exit codes: 0 if the job ended or was stopped, 1 if it
    failed, 3 if a newer driver has taken over the job.
    """
    from ..pipeline.jobs.spec import JobError, load
    from ..pipeline.requirements import RequirementError, require_java, require_spark

    listener = None if metrics is None else _listener(metrics)
    try:
        given = dict(_pair(one) for one in variables)
        found = load(job, given)
        require_spark()
        require_java()
        from ..pipeline.jobs.checks import prepare
        from ..pipeline.jobs.process import JobProcess

        def notice(text: str) -> None:
            click.echo(f"oncelog: {text}", err=True)

        process = JobProcess(found, master or found.master, debug=debug)
        if not dry_run:
            prepare(found, notice)
        if not quiet and sys.stderr.isatty():
            notice(f"starting Spark on {master or found.master}")
        with process.session() as spark:
            runner = process.runner(
                spark,
                on_progress=lambda progress: None if quiet else click.echo(progress_line(progress, as_json=as_json)),
                on_restart=lambda sink, why: click.echo(f"{sink}: starting again after: {why}", err=True),
                on_notice=notice,
                on_waiting=lambda text: None if quiet else notice(text),
            )
            if dry_run:
                click.echo(runner.describe(), nl=False)
                return
            if listener is not None:
                _serve(runner.metrics.registry, *listener)
            process.run(runner, stop_signals())
    except (JobError, RequirementError) as error:
        if debug:
            traceback.print_exception(error)
        click.echo(f"oncelog: {error}", err=True)
        sys.exit(error.exit_code if isinstance(error, JobError) else 1)


@pipeline.command(short_help="Run a Spark cluster on this machine.")
@click.option("--workers", type=click.IntRange(1, 100), default=2, show_default=True, help="Number of workers.")
@click.option("--cores", type=click.IntRange(1), default=1, show_default=True, help="Concurrent tasks per worker.")
@click.option(
    "--memory",
    metavar="SIZE",
    default="1g",
    show_default=True,
    callback=lambda context, option, given: _memory(given),
    help="Memory for executors per worker, such as 512m or 2g.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7077,
    show_default=True,
    help="Port of the master. 0 selects a free port.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for logs and executors' files.  [default: a temporary directory]",
)
def cluster(workers: int, cores: int, memory: str, port: int, directory: Path | None) -> None:
    """Run a Spark standalone cluster, a master and workers, on 127.0.0.1 until SIGTERM, SIGINT or SIGHUP.

    The command prints the line `ready spark://127.0.0.1:PORT` when all workers have registered. Events go to stderr. A
    worker that dies is restarted.

    \b
    oncelog pipeline cluster
    oncelog pipeline run job.toml --master spark://127.0.0.1:7077
    """
    import contextlib
    import shutil
    import signal
    import tempfile

    from ..pipeline.cluster import ClusterError, StandaloneCluster
    from ..pipeline.requirements import RequirementError, require_java, require_spark

    kept = directory or Path(tempfile.mkdtemp(prefix="oncelog-cluster-"))
    try:
        require_spark()
        require_java()
        spark = StandaloneCluster(
            kept, port=port, workers=workers, cores=cores, memory=memory, tell=lambda line: click.echo(line, err=True)
        )
        for number in stop_signals():
            signal.signal(number, lambda *_: spark.request_stop())
        click.echo(f"logs in {kept}", err=True)
        try:
            if (url := spark.start()) is not None:
                click.echo(f"ready {url}")
                spark.watch()
        finally:
            spark.stop()
    except (ClusterError, RequirementError) as error:
        if directory is None:  # rmdir removes an empty directory only: the logs of the failure are kept
            with contextlib.suppress(OSError):
                kept.rmdir()
        click.echo(f"oncelog: {error}", err=True)
        sys.exit(1)
    if directory is None:
        shutil.rmtree(kept, ignore_errors=True)


def progress_line(progress: Progress, *, as_json: bool) -> str:
    """Return the line that reports a micro-batch, as text or as JSON."""
    return json.dumps(progress._asdict()) if as_json else str(progress)


def _memory(given: str) -> str:
    import re

    if not re.fullmatch(r"[1-9]\d*[mg]", given):
        raise click.BadParameter(f"{given!r} is not a size such as 512m or 2g", param_hint="--memory")
    return given


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--var")
    return name, value


def _serve(registry: object, host: str, port: int) -> None:
    from prometheus_client import start_http_server

    from ..pipeline.jobs.spec import JobError

    try:
        start_http_server(port, host, registry=registry)  # type: ignore[arg-type]
    except OSError as error:
        raise JobError(f"--metrics {host}:{port}: {error.strerror or error}: choose another address") from None


def _listener(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9404", param_hint="--metrics")
    return host, int(port)
