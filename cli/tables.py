"""Tables on a terminal, and the same rows as plain text or JSON where the output goes elsewhere.

On a terminal a table has borders and a header, and fits the width. In a pipe or a file it is lines of columns separated
by tabs, for `cut`, `awk` and people alike. There a description (`print_table`) has a line with the names of its
columns; a list of one item per line (`print_list`) has none, so that a pipe gets the items and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import click

from .json_output import print_json

Item = Mapping[str, object]
"""One thing of a list or table: its properties by the names that they have in JSON."""


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; a column whose name begins with > is aligned to the right."""
    if not sys.stdout.isatty():
        names = [column.lstrip(">") for column in columns]
        for line in ([title] if title is not None else []) + ["\t".join(cells) for cells in (names, *rows)]:
            click.echo(line)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column[0] == ">" else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_list(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Print one item per line, its columns separated by tabs; on a terminal as a table.

    Without an item, `empty` goes to stderr.
    """
    if not rows:
        click.echo(empty, err=True)
    elif sys.stdout.isatty():
        print_table(None, columns, rows)
    else:
        for row in rows:
            click.echo("\t".join(row))


def print_items(columns: Sequence[str], items: Sequence[Item], empty: str, *, as_json: bool) -> None:
    """Print a list of items: these columns of them, or everything as a JSON array."""
    if as_json:
        print_json(items)
    else:
        print_list(_headings(columns), cells(columns, items), empty)


def print_items_table(title: str | None, columns: Sequence[str], items: Sequence[Item]) -> None:
    """Print a table of items, with these columns of them."""
    print_table(title, _headings(columns), cells(columns, items))


def cells(columns: Sequence[str], items: Iterable[Item]) -> list[list[str]]:
    """Return the text of each item's columns; `-` for what is missing or empty."""
    return [[_text(item[column.lstrip(">")]) for column in columns] for item in items]


def _headings(columns: Sequence[str]) -> list[str]:
    return [column.replace("_", " ") for column in columns]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)
