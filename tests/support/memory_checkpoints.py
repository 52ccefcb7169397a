"""Keep checkpoints in memory: a second implementation of `Checkpoints`, beside the files."""

from __future__ import annotations

from collections.abc import Mapping


class MemoryCheckpoints:
    """Checkpoints that several brokers share, and that outlive each of them."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[tuple[str, int], int]] = {}

    def read(self, name: str) -> dict[tuple[str, int], int] | None:
        kept = self.kept.get(name)
        return None if kept is None else dict(kept)

    def write(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self.kept[name] = dict(offsets)
