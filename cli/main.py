"""The `oncelog` command: the group of all commands, and how failures reach the user.

Importing this module must stay cheap: command modules import click only, and broker, client and rich inside of the
function that needs them, so that --help answers at once and `serve` is up in a moment.

A foreseen failure is one sentence on stderr with its remedy, and exit code 1; wrong usage and wrong settings give exit
code 2, and an interrupt 130. A traceback means a bug in oncelog.
"""

from __future__ import annotations

import sys

import click

from .cluster import cluster
from .completion import completion
from .connect import connect
from .consume import consume
from .failures import FAILURE, INTERRUPTED, USAGE, explain, is_setting
from .group import group
from .health import health
from .kafka_options import with_our_name
from .log import log
from .pipeline import pipeline
from .produce import produce
from .serve import serve
from .topic import topic
from .txn import txn


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="oncelog", prog_name="oncelog")
def oncelog() -> None:
    """A Kafka-compatible broker in one process, specialised in exactly-once, and tools for any Kafka.

    \b
    oncelog serve --data-dir data                     start a broker (127.0.0.1:9092)
    oncelog topic create orders --partitions 3        make a topic
    echo 'hello' | oncelog produce orders             one record per line
    oncelog consume orders --from-beginning           read them all, and wait for more
    oncelog consume orders --group billing            go on where the group stopped
    oncelog group describe billing                    who reads, and how far behind
    oncelog group reset billing --to-time 2h          read the last two hours again
    oncelog txn list --state Ongoing                  transactions that are open now

    Commands that need a broker take --bootstrap HOST:PORT, else $ONCELOG_BOOTSTRAP, else 127.0.0.1:9092. It may be
    Apache Kafka as well. --json prints results as JSON. Exit codes: 0 success, 1 failure, 2 wrong usage.
    """


for command in (serve, topic, produce, consume, group, txn, cluster, log, health, pipeline, connect, completion):
    oncelog.add_command(command)


def main() -> None:
    """Entry point of the `oncelog` command; ends the process with its exit code."""
    try:
        code = oncelog.main(prog_name="oncelog", standalone_mode=False)
    except click.UsageError as error:
        shown = with_our_name(error) if isinstance(error, click.NoSuchOption) else error
        shown.show()
        code = USAGE
    except click.ClickException as error:
        click.echo(f"oncelog: {error.format_message()}", err=True)
        code = FAILURE
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        click.echo(f"oncelog: {sentence}", err=True)
        code = USAGE if is_setting(error) else FAILURE
    sys.exit(code if isinstance(code, int) else 0)
