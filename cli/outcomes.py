"""Print the outcome of a deletion for each of several items, with failures on stderr."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ..protocol.errors import ErrorCode, KafkaError
from .json_output import print_json


def print_outcomes(
    outcomes: Mapping[str, KafkaError | None],
    kind: str,
    *,
    done: str,
    absent: str,
    absent_code: ErrorCode | None,
    as_json: bool,
) -> int:
    """Print the outcome of each item. Return the exit code, which is 1 if an item failed, else 0.

    `done` and `absent` are sentences with {} in place of the item. An item whose error has the code `absent_code` does
    not exist. It does not count as failed, and the sentence `absent` is printed.
    """
    failed = 0
    results: list[dict[str, object]] = []
    for item, error in outcomes.items():
        result: dict[str, object] = {kind: item, "deleted": error is None}
        if error is None:
            sentence = done.format(item)
        elif error.code is absent_code:
            sentence = absent.format(item)
        else:
            failed += 1
            sentence = ""
            result["error"] = str(error)
            click.echo(f"oncelog: {error}", err=True)
        results.append(result)
        if sentence and not as_json:
            click.echo(sentence)
    if as_json:
        print_json(results)
    return 1 if failed else 0
