"""Print rows as a table on a terminal, and as plain text or JSON elsewhere.

On a terminal, a table has borders and a header, and fits the terminal's width. In a pipe or a file, it consists of
lines whose columns are separated by tabs, which suits `cut` and `awk`. There, `print_table` prints a line with the
names of the columns, and `print_list` prints only the items.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import click

from .json_output import print_json

Item = Mapping[str, object]
"""A row of a list or table: its values by the names that they have in JSON."""


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. A column whose name begins with > is aligned to the right."""
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
    """Print a list: as a table on a terminal, else one row per line with its columns separated by tabs.

    If there are no rows, print `empty` to stderr.
    """
    if not rows:
        click.echo(empty, err=True)
    elif sys.stdout.isatty():
        print_table(None, columns, rows)
    else:
        for row in rows:
            click.echo("\t".join(row))


def print_items(columns: Sequence[str], items: Sequence[Item], empty: str, *, as_json: bool) -> None:
    """Print the given columns of the items as a list, or with `as_json` the whole items as a JSON array.

    If there are no items, the list prints `empty` to stderr.
    """
    if as_json:
        print_json(items)
    else:
        print_list(_headings(columns), cells(columns, items), empty)


def print_items_table(title: str | None, columns: Sequence[str], items: Sequence[Item]) -> None:
    """Print the given columns of the items as a table."""
    print_table(title, _headings(columns), cells(columns, items))


def cells(columns: Sequence[str], items: Iterable[Item]) -> list[list[str]]:
    """Return a row of strings for each item, one per column. A None or an empty value becomes `-`."""
    return [[_text(item[column.lstrip(">")]) for column in columns] for item in items]


def _headings(columns: Sequence[str]) -> list[str]:
    return [column.replace("_", " ") for column in columns]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)
