"""Map options of Apache Kafka's command-line tools to those of oncelog, for error messages."""

from __future__ import annotations

from typing import Final

import click

OURS: Final = {
    "--add-config": "--set NAME=VALUE of `oncelog topic alter`",
    "--all-groups": "the command `oncelog group list`, or the groups' names as arguments",
    "--all-topics": "the command without --topic",
    "--alter": "the command `oncelog topic alter`",
    "--bootstrap-server": "--bootstrap HOST:PORT",
    "--by-duration": "--to-time, as in --to-time 2h",
    "--compression-codec": "--compression",
    "--create": "the command `oncelog topic create`",
    "--delete": "the command `oncelog topic delete` or `oncelog group delete`",
    "--delete-config": "--unset NAME of `oncelog topic alter`",
    "--delete-offsets": "the command `oncelog group delete-offsets`",
    "--describe": "the command `oncelog topic describe`, `oncelog group describe` or `oncelog txn describe`",
    "--entity-name": "the name as an argument, without an option",
    "--group": "the group as an argument, without an option",
    "--isolation-level": "--isolation",
    "--list": "the command `oncelog topic list`, `oncelog group list` or `oncelog txn list`",
    "--reset-offsets": "the command `oncelog group reset`",
    "--timeout-ms": "--timeout SECONDS",
    "--topic": "the topic as an argument, without an option",
    "--transactional-id": "the transactional id as an argument, without an option",
}
"""The equivalent in oncelog of each option of Kafka's tools, for commands that do not have that option."""


def with_our_name(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error. If the option belongs to Kafka's tools, the message says what to do in oncelog instead."""
    ours = OURS.get(error.option_name)
    if ours is None:
        return error
    message = f"No such option {error.option_name!r}. It is an option of Kafka's tools. In oncelog, use {ours}."
    return click.NoSuchOption(error.option_name, message, ctx=error.ctx)
