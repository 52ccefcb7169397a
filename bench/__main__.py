"""Compare oncelog (durability os and flush) with Apache Kafka 4.1 in alternating runs (`python -m bench`)."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .cases import CASES, Figure
from .peers import Peer, apache_kafka, oncelog


def main() -> None:
    """Run the chosen cases on all brokers and print the table."""
    options = argparse.ArgumentParser(prog="bench", description=__doc__)
    options.add_argument("--rounds", type=int, default=3, help="number of runs of each case on each broker (default 3)")
    options.add_argument("--only", action="append", choices=sorted(CASES), help="run only this case; may be repeated")
    options.add_argument("--without-kafka", action="store_true", help="measure only oncelog, without Apache Kafka")
    chosen = options.parse_args()
    cases = {name: case for name, case in CASES.items() if not chosen.only or name in chosen.only}
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    figures: dict[str, Figure] = {}

    def note(peer: Peer, figure: Figure) -> None:
        figures[figure.name] = figure
        values[figure.name][peer.name].append(figure.value)

    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as directory, contextlib.ExitStack() as running:
        home = Path(directory)
        peers = [running.enter_context(oncelog(home / name, name)) for name in ("os", "flush")]
        if not chosen.without_kafka:
            peers.append(running.enter_context(apache_kafka(home / "kafka")))
        for peer in peers:
            note(peer, Figure("start to ready", "s", peer.start_s, more_is_better=False))
            note(peer, Figure("idle memory", "MB", peer.idle_memory_mb(), more_is_better=False))
        with Progress(transient=True) as progress:
            task = progress.add_task("", total=chosen.rounds * len(cases) * len(peers))
            for round_number in range(chosen.rounds):
                for name, case in cases.items():
                    # Each round begins with a different broker, so that no broker always runs on a cold machine.
                    for turn in range(len(peers)):
                        peer = peers[(turn + round_number) % len(peers)]
                        progress.update(task, description=f"{name} on {peer.name}")
                        for figure in case(peer.address):
                            note(peer, figure)
                        progress.advance(task)
    show([peer.name for peer in peers], figures, values, chosen.rounds)


def show(names: list[str], figures: dict[str, Figure], values: dict[str, dict[str, list[float]]], rounds: int) -> None:
    """Print the medians of all figures, and the ratios to Apache Kafka."""
    table = Table(title=f"medians of {rounds} alternating rounds, librdkafka client")
    table.add_column("figure")
    for name in names:
        table.add_column(name, justify="right")
    others = [name for name in names if name != "Apache Kafka"]
    compared = "Apache Kafka" in names
    for name in others if compared else []:
        table.add_column(f"{name} / Kafka", justify="right")
    for figure in figures.values():
        medians = {name: statistics.median(values[figure.name][name]) for name in names}
        row = [f"{figure.name}, {figure.unit}{'' if figure.more_is_better else ' (less is better)'}"]
        row += [f"{medians[name]:,.2f}" for name in names]
        if compared:
            row += [f"{medians[name] / medians['Apache Kafka']:.2f} ×" for name in others]
        table.add_row(*row)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
