"""Limit the memory of the loaded indexes of finished segments, over all logs of a data directory.

Every use of a loaded index calls `touch`. When the memory exceeds the limit, the cache drops the indexes of the least
recently used segments. They are read from their files again when they are needed. Indexes of active segments exist only
in memory and are not counted. The cache is not thread-safe: use it on the event loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

DEFAULT_BYTES: Final = 128 << 20


class Indexed(Protocol):
    """The interface of a segment that the cache uses."""

    @property
    def loaded_index_bytes(self) -> int:
        """Approximate memory of the loaded indexes, in bytes."""

    def forget_indexes(self) -> None:
        """Free the memory of the loaded indexes."""


class IndexCache:
    """A cache of at most `max_bytes` of loaded indexes. It always keeps those of the most recently used segment."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._sizes: OrderedDict[Indexed, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sizes)

    def loaded(self, segment: Indexed) -> None:
        """Count the loaded indexes of `segment`. Drop those of other segments while the cache exceeds its limit."""
        size = segment.loaded_index_bytes
        self.used_bytes += size - self._sizes.pop(segment, 0)
        self._sizes[segment] = size
        while self.used_bytes > self.max_bytes and len(self._sizes) > 1:
            oldest, size = self._sizes.popitem(last=False)
            self.used_bytes -= size
            oldest.forget_indexes()

    def touch(self, segment: Indexed) -> None:
        """Mark `segment` as the most recently used one."""
        if segment in self._sizes:
            self._sizes.move_to_end(segment)

    def drop(self, segment: Indexed) -> None:
        """Stop counting a segment that was removed or has dropped its indexes."""
        self.used_bytes -= self._sizes.pop(segment, 0)
