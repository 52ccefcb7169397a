"""Define the `oncelog` command: the group of all commands, and the report of their errors.

Importing this module must stay cheap, so that --help answers at once and `serve` starts quickly. Command modules import
only click at the top. They import broker, client and rich inside the function that needs them.

An expected error prints one sentence with its remedy on stderr, and the exit code is 1. Wrong usage and wrong settings
end with exit code 2, and an interrupt with 130. A traceback means a bug in oncelog.
"""

from __future__ import annotations

import sys

import click

from .acl import acl
from .certs import certs
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
from .quota import quota
from .serve import serve
from .token import token
from .topic import topic
from .txn import txn
from .user import user


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="oncelog", prog_name="oncelog")
def oncelog() -> None:
    """A Kafka-compatible broker in one process, specialised in exactly-once, and tools for any Kafka.

    \b
    oncelog serve --data-dir data                     start a broker (127.0.0.1:9092)
    oncelog topic create orders --partitions 3        create a topic
    echo 'hello' | oncelog produce orders             write one record per line
    oncelog consume orders --from-beginning           read all records, and wait for more
    oncelog consume orders --group billing            continue at the group's committed offsets
    oncelog group describe billing                    members and lag of a group
    oncelog group reset billing --to-time 2h          read the last two hours again
    oncelog txn list --state Ongoing                  open transactions

    Commands that need a broker use the address --bootstrap HOST:PORT, else $ONCELOG_BOOTSTRAP, else 127.0.0.1:9092. A
    profile (--profile NAME) has an address and other settings. The broker may be Apache Kafka. --json prints results as
    JSON. Exit codes: 0 success, 1 failure, 2 wrong usage.
    """


for command in (
    serve,
    topic,
    produce,
    consume,
    group,
    txn,
    cluster,
    log,
    health,
    certs,
    user,
    acl,
    token,
    quota,
    pipeline,
    connect,
    completion,
):
    oncelog.add_command(command)


def main() -> None:
    """Run the `oncelog` command, and end the process with its exit code."""
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
