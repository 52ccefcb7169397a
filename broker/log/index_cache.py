"""How much memory the loaded indexes of finished segments take, over all logs of a data directory.

Every use of a loaded index goes through `touch`. The indexes of the segments used longest ago are forgotten; they are
read from their files again when they are needed. The indexes of active segments exist in memory alone and do not count.
Not thread-safe: used on the event loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

DEFAULT_BYTES: Final = 128 << 20


class Indexed(Protocol):
    """A segment, as the cache sees it."""

    @property
    def loaded_index_bytes(self) -> int:
        """Memory of the indexes that are loaded."""

    def forget_indexes(self) -> None:
        """Let the memory go."""


class IndexCache:
    """At most `max_bytes` of loaded indexes, and those of the segment used last whatever their size."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._sizes: OrderedDict[Indexed, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sizes)

    def loaded(self, segment: Indexed) -> None:
        """Count what `segment` has loaded, and forget others for it."""
        size = segment.loaded_index_bytes
        self.used_bytes += size - self._sizes.pop(segment, 0)
        self._sizes[segment] = size
        while self.used_bytes > self.max_bytes and len(self._sizes) > 1:
            oldest, size = self._sizes.popitem(last=False)
            self.used_bytes -= size
            oldest.forget_indexes()

    def touch(self, segment: Indexed) -> None:
        """`segment` is the one used last."""
        if segment in self._sizes:
            self._sizes.move_to_end(segment)

    def drop(self, segment: Indexed) -> None:
        """Stop counting a segment that is removed, or has forgotten its indexes."""
        self.used_bytes -= self._sizes.pop(segment, 0)
