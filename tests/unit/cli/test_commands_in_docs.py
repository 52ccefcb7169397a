"""Every command that the documents name exists, with the options that they give."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from oncelog.cli.main import oncelog

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    lines = re.sub(r" && |; ", "\n", blocks)
    shown = re.findall(r"^(?:.*\| )?oncelog (.*)$", lines, re.MULTILINE)
    return [*re.findall(r"`oncelog ([^`]+)`", text), *(re.split(r"\s+[#|>&]", line)[0] for line in shown)]


CASES = [(page.name, command) for page in PAGES for command in commands(page)]


def test_documents_name_commands() -> None:
    assert len(CASES) > 40


@pytest.mark.parametrize(("page", "line"), CASES)
def test_command_exists_with_its_options(page: str, line: str) -> None:
    command: click.Command = oncelog
    words = shlex.split(line)
    path = []
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        path.append(words.pop(0))
        choices = path[-1].split("|")
        found = [command.get_command(click.Context(command), choice) for choice in choices]
        assert all(found), f"{page}: there is no command `oncelog {' '.join(path)}`"
        assert found[0] is not None
        command = found[0]
        if len(choices) > 1:
            return
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= options | {"--help"}, f"{page}: `oncelog {' '.join(path)}` has no {given - options}"
