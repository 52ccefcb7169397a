"""The `oncelog` command: the group of all commands, and how failures reach the user.

Importing this module must stay cheap: command modules import click only, and broker, client and rich inside of the
function that needs them, so that --help answers at once and `serve` is up in a moment.

A failure that we foresee is one sentence on stderr with its remedy, and exit code 1 (2 for wrong usage or settings). A
traceback means a bug of ours.
"""

from __future__ import annotations

import sys

import click

from .connect import connect
from .consume import consume
from .failures import explain
from .group import group
from .health import health
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
    oncelog txn list --state Ongoing                  transactions that are open now

    All commands but serve and log talk to --bootstrap HOST:PORT, or $ONCELOG_BOOTSTRAP, or 127.0.0.1:9092. That may be
    an Apache Kafka as well.
    """


for command in (serve, topic, produce, consume, group, txn, log, health, pipeline, connect):
    oncelog.add_command(command)


def main() -> None:
    """Entry point of the `oncelog` command; ends the process with its exit code."""
    try:
        code = oncelog.main(prog_name="oncelog", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        click.echo(f"oncelog: {sentence}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
