"""Checkpoints in memory: the second implementation of `Checkpoints`, beside that in files."""

from __future__ import annotations

from collections.abc import Mapping


class MemoryCheckpoints:
    """What several brokers would share; it outlives each of them."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[tuple[str, int], int]] = {}

    def read(self, name: str) -> dict[tuple[str, int], int] | None:
        kept = self.kept.get(name)
        return None if kept is None else dict(kept)

    def write(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self.kept[name] = dict(offsets)
