"""The group of all commands: it imports a command when it needs it."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from oncelog.cli.main import COMMANDS, oncelog


def imported_by(code: str) -> set[str]:
    """Return the names of the modules that a new process has imported after `code`."""
    code += "; import sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_commands_are_listed_in_alphabetical_order() -> None:
    assert oncelog.list_commands(click.Context(oncelog)) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_defined_in_the_module_of_its_name(name: str) -> None:
    command = oncelog.get_command(click.Context(oncelog), name)
    assert command is not None
    assert command.name == name


def test_an_unknown_command_is_none() -> None:
    assert oncelog.get_command(click.Context(oncelog), "main") is None


def test_a_command_is_imported_without_the_others() -> None:
    code = "import click; from oncelog.cli.main import oncelog; oncelog.get_command(click.Context(oncelog), 'serve')"
    modules = imported_by(code)
    assert "oncelog.cli.serve" in modules
    assert not {"oncelog.cli.consume", "oncelog.cli.connect"} & modules


def test_the_list_of_all_commands_needs_neither_the_event_loop_nor_the_client() -> None:
    code = "import click; from oncelog.cli.main import oncelog; oncelog.get_help(click.Context(oncelog))"
    modules = imported_by(code)
    assert "oncelog.cli.consume" in modules
    assert not {"asyncio", "uvloop", "rich", "oncelog.client", "oncelog.broker", "oncelog.protocol"} & modules


def test_commands_for_administrators_do_not_import_the_consumer_nor_the_producer() -> None:
    modules = imported_by("import oncelog.client.admin")
    assert "oncelog.client.cluster" in modules
    assert not {"oncelog.client.consumer", "oncelog.client.producer", "oncelog.protocol.records"} & modules
