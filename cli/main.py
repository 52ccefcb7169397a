"""Define the `oncelog` command: the group of all commands, and the report of their errors.

Importing this module and those of the commands must stay cheap, so that --help answers at once and `serve` starts
quickly. Command modules import only click at the top. They import broker, client, asyncio and rich inside the function
that needs them.

For an expected error, the command prints one sentence with a remedy on stderr, and exits with code 1. The exit code is
2 after a usage error or a wrong setting, 130 after an interrupt, 143 after SIGTERM and 129 after SIGHUP. Servers such
as `serve` exit with code 0 after these signals. A traceback means a bug in oncelog.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import click

from ..version import VERSION
from .failures import FAILURE, INTERRUPTED, USAGE, Terminated, explain, is_setting, not_text
from .kafka_options import with_our_name
from .standard_streams import end_output, open_missing

COMMANDS: Final = (
    "acl",
    "certs",
    "cluster",
    "completion",
    "connect",
    "consume",
    "group",
    "health",
    "log",
    "pipeline",
    "produce",
    "quota",
    "serve",
    "token",
    "topic",
    "txn",
    "user",
)
"""The names of the commands, and of the modules that define them under the same names."""


class Commands(click.Group):
    """The group of all commands. It imports the module of a command only when it needs the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in alphabetical order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f".{cmd_name}", __package__), cmd_name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="oncelog")
def oncelog() -> None:
    """A Kafka-compatible broker in one process, specialised in exactly-once delivery, and tools for any Kafka cluster.

    \b
    oncelog serve --data-dir data                     start a broker (127.0.0.1:9092)
    oncelog topic create orders --partitions 3        create a topic
    echo 'hello' | oncelog produce orders             write one record per line
    oncelog consume orders --from-beginning           read all records, and wait for more
    oncelog consume orders --group billing            continue at the group's committed offsets
    oncelog group describe billing                    members and lag of a group
    oncelog group reset billing --to-time 2h          read the last two hours again
    oncelog txn list --state Ongoing                  open transactions

    Commands that need a broker use the address --bootstrap HOST:PORT, else that of --client-config FILE or --profile
    NAME, else $ONCELOG_BOOTSTRAP, else 127.0.0.1:9092. A profile contains an address and other settings. The broker may
    be Apache Kafka. --json prints results as JSON. Exit codes: 0 success, 1 failure, 2 usage error.
    """


def main() -> None:
    """Run the `oncelog` command, and end the process with its exit code."""
    open_missing()
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
    except Terminated as error:
        code = error.exit_code
    except Exception as error:
        wrong = not_text(error, sys.argv[1:])
        sentence = wrong or explain(error)
        if sentence is None:
            raise
        click.echo(f"oncelog: {sentence}", err=True)
        code = USAGE if wrong or is_setting(error) else FAILURE
    end_output()
    sys.exit(code if isinstance(code, int) else 0)
