"""Tables on a terminal, and the same rows as plain text where the output goes elsewhere.

On a terminal a table has borders and fits the width. In a pipe or a file it is lines of columns separated by tabs,
under a line with their names, for `cut`, `awk` and people alike. The lists of one item per line (`print_list`) have the
names of their columns on a terminal only, so that a pipe gets the items and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click


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


def print_list(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str | None) -> None:
    """Print one item per line, its columns separated by tabs; on a terminal as a table.

    Without an item, `empty` goes to stderr; None: only on a terminal, for lists that a filter has left empty.
    """
    terminal = sys.stdout.isatty()
    if not rows and (terminal or empty is not None):
        click.echo(empty or "Nothing fits all filters.", err=True)
    elif terminal and len(columns) > 1:
        print_table(None, columns, rows)
    else:
        for row in rows:
            click.echo("\t".join(row))
