"""Divides the suffixes of a pool's transactional ids among its group's members: `divide`, and the members' metadata.

The division is cooperative. A member keeps its suffixes until it is assigned others. A suffix that moves is given to
its new holder only after the former holder has reported that it gave the suffix up. So two members that know of each
other never get the same suffix.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

PROTOCOL_TYPE: Final = "oncelog-producer-pool"
PROTOCOL: Final = "suffixes-v1"
MAX_SIZE: Final = 10_000


class Holding(NamedTuple):
    """A member's metadata: the pool's size, the member's suffixes (those in use first), and the member's generation."""

    size: int
    suffixes: tuple[int, ...] = ()
    generation_id: int = -1

    def encode(self) -> bytes:
        """Return the metadata as JSON, for JoinGroup."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Holding:
        """Return the decoded metadata. Raises ValueError for data that no member of a pool's group sends."""
        try:
            parsed = json.loads(data)
            size, suffixes, generation = (
                int(parsed["size"]),
                tuple(map(int, parsed["suffixes"])),
                parsed["generation_id"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"not a member of a producer pool: {data[:100]!r}") from error
        if not 1 <= size <= MAX_SIZE or len(suffixes) > MAX_SIZE:
            raise ValueError(
                f"a pool member reports size {size} and {len(suffixes)} suffixes: the size must be 1 to {MAX_SIZE}, and"
                f" there can be at most {MAX_SIZE} suffixes"
            )
        return cls(size, suffixes, int(generation))


def encode_share(suffixes: list[int]) -> bytes:
    """Return a member's suffixes, encoded as the member's assignment."""
    return json.dumps(suffixes, separators=(",", ":")).encode()


def decode_share(data: bytes) -> set[int]:
    """Return the suffixes that this member may use; empty data means none."""
    return set(map(int, json.loads(data))) if data else set()


def divide(holdings: Mapping[str, Holding]) -> dict[str, list[int]]:
    """Return the suffixes of each member. The suffixes are 0 to size - 1; size is the largest that a member sent.

    Shares differ by one at most, not counting suffixes that move. If two members hold a suffix, the member of the later
    generation keeps it; in the same generation neither member keeps it.
    """
    size = max(holding.size for holding in holdings.values())
    owners = _owners(holdings, size)
    kept: dict[str, list[int]] = {
        member: [suffix for suffix in dict.fromkeys(holding.suffixes) if owners.get(suffix) == member]
        for member, holding in holdings.items()
    }
    least, more = divmod(size, len(holdings))
    by_wealth = sorted(holdings, key=lambda member: (-len(kept[member]), member))
    quota = {member: least + (place < more) for place, member in enumerate(by_wealth)}
    free = [suffix for suffix in range(size) if suffix not in owners]
    shares = {member: suffixes[: quota[member]] for member, suffixes in kept.items()}
    for member in by_wealth:
        missing = quota[member] - len(shares[member])
        shares[member] += free[:missing]
        del free[:missing]
    return shares


def _owners(holdings: Mapping[str, Holding], size: int) -> dict[int, str | None]:
    """Return the holder of each suffix, or None if two members of the newest generation hold the suffix."""
    owners: dict[int, str | None] = {}
    since: dict[int, int] = {}
    for member, holding in holdings.items():
        for suffix in set(holding.suffixes):
            if not 0 <= suffix < size:
                continue
            if suffix not in owners or holding.generation_id > since[suffix]:
                owners[suffix], since[suffix] = member, holding.generation_id
            elif holding.generation_id == since[suffix]:
                owners[suffix] = None
    return owners
