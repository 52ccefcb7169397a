"""Generate docs/reference/commands.md, the page of all commands, from their help texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Final

import click

from ..protocol.documentation import table
from .main import oncelog

_PAGE: Final = """\
# Command line

Each command prints the same text with `--help`.

{commands}
"""
_OPTION: Final = re.compile(r"(?<![\w`-])(--[a-z][a-z-]*)")


def page() -> str:
    """Return the text of docs/reference/commands.md."""
    context = click.Context(oncelog, info_name="oncelog")
    own = "\n\n".join(_description(oncelog))
    return _PAGE.format(commands="\n\n".join([own, *_sections(oncelog, context, level=2)]))


def _sections(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield f"{'#' * level} {inner.command_path}"
        if isinstance(command, click.Group):
            yield from _description(command)
            yield from _sections(command, inner, level + 1)
        else:
            yield f"```text\n{' '.join([inner.command_path, *command.collect_usage_pieces(inner)])}\n```"
            yield from _description(command)
            yield _options(command, inner)


def _description(command: click.Command) -> Iterator[str]:
    """Yield the paragraphs of a command's help text as Markdown. A paragraph that begins with \\b is code."""
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        lines = paragraph.split("\n")
        if lines[0] == "\b":
            yield "```text\n" + "\n".join(lines[1:]) + "\n```"
        else:
            yield _OPTION.sub(r"`\1`", _escaped(" ".join(lines)))


def _options(command: click.Command, context: click.Context) -> str:
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1] and "--help" not in parameter.opts:
            names, meaning = record
            rows.append((f"`{names}`", _escaped(re.sub(r" {2,}", " ", meaning.replace("]  [", "; ")))))
    return table(("option", "meaning"), rows) if rows else "This command has no options."


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")
