"""`oncelog pipeline`: run a job on Spark, exactly-once from topics to topics."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group(short_help="Run data pipelines on Spark.")
def pipeline() -> None:
    """Run data pipelines on Spark: sources, SQL or Python transforms and sinks from a file, exactly-once.

    Needs the extra: pip install 'oncelog[pipeline]', and Java 17 or newer.
    """


@pipeline.command(short_help="Run a job file.")
@click.argument("job", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print schemas and plan; read and write nothing.")
@click.option("--master", metavar="URL", help="Spark's master instead of the file's: local[4], spark://host:7077, …")
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="Value of ${NAME} in the file.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus there.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def run(
    job: Path, dry_run: bool, master: str | None, variables: tuple[str, ...], metrics: str | None, quiet: bool
) -> None:
    """Run a job until it is stopped (Ctrl-C, SIGTERM), or until its sources are read with trigger = "available-now".

    \b
    oncelog pipeline run flights.toml --dry-run
    oncelog pipeline run flights.toml --var BOOTSTRAP=127.0.0.1:9092
    oncelog pipeline run flights.toml --master spark://10.0.0.5:7077

    A failed query is started again from its checkpoint, max_restarts times within restart_window. docs/pipeline.md
    says how a job file is written.
    """
    import contextlib
    import signal

    from ..pipeline.job_spec import JobError, load
    from ..pipeline.requirements import RequirementError, require_java, require_spark

    try:
        given = dict(_pair(one) for one in variables)
        found = load(job, given)
        require_spark()
        require_java()
        from ..pipeline import spark_session
        from ..pipeline.job_runner import JobRunner

        spark = spark_session(master or found.master, app_name=found.name, settings=found.spark)
        try:
            spark.sparkContext.setLogLevel("OFF")
            runner = JobRunner(
                spark,
                found,
                on_progress=lambda progress: None if quiet else click.echo(str(progress)),
                on_restart=lambda sink, why: click.echo(f"{sink}: starting again after: {why}", err=True),
            )
            if dry_run:
                click.echo(runner.describe(), nl=False)
                return
            if metrics:
                _serve(runner.metrics.registry, metrics)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: runner.stop())
            try:
                runner.run()
            except OSError as error:  # py4j's, which lost the JVM that it talks to
                raise JobError(
                    f"Spark's JVM has ended ({error}): start the job again, it goes on where it was"
                ) from None
        finally:
            with contextlib.suppress(OSError):
                spark.stop()
    except (JobError, RequirementError) as error:
        click.echo(f"oncelog: {error}", err=True)
        sys.exit(1)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--var")
    return name, value


def _serve(registry: object, listener: str) -> None:
    from prometheus_client import start_http_server

    host, _, port = listener.rpartition(":")
    if not host or not port.isdecimal():
        raise click.BadParameter(f"{listener!r} is not HOST:PORT", param_hint="--metrics")
    start_http_server(int(port), host, registry=registry)  # type: ignore[arg-type]
