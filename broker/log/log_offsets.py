"""Keep the offsets of one log: where it begins and ends, and how far its readers may see.

These are the log start offset, the last stable offset, the high watermark and the log end offset. This module also
keeps the listeners that are called when readers may see more. It does not know what is on disk: `LogFiles` decides when
the high watermark moves.

Invariant, at every moment: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .producer_state_manager import ProducerStateManager

Listener = Callable[[Any], None]


class LogOffsets:
    """The offsets of one log. When the log is loaded, all of its records are visible.

    `LogFiles.appended` sets `log_end_offset`; the methods set the other offsets. `producers`: the state of the log's
    producers, which is up to date with the log end offset. Open transactions hold back the last stable offset.
    `listeners`: the functions that are called, and the argument of each.
    """

    __slots__ = (
        "_producers",
        "high_watermark",
        "last_stable_offset",
        "listeners",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, log_start_offset: int, log_end_offset: int, producers: ProducerStateManager) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_end_offset
        self.last_stable_offset = log_end_offset
        self.listeners: dict[Listener, Any] = {}
        self._producers = producers
        producers.on_high_watermark(log_end_offset)
        self._update_last_stable_offset()

    def add_listener(self, listener: Listener, argument: Any) -> None:
        """Call `listener(argument)` after each move of the high watermark or last stable offset, and after a failure.

        The listener must not append.
        """
        self.listeners[listener] = argument

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling `listener`, if it was added."""
        self.listeners.pop(listener, None)

    def start_at(self, offset: int) -> None:
        """Set the log start offset, because the records below it are deleted."""
        self.log_start_offset = offset
        self._update_last_stable_offset()

    def advance(self, high_watermark: int) -> None:
        """Set the high watermark, update the last stable offset, and call the listeners."""
        self.high_watermark = high_watermark
        producers = self._producers
        if producers.has_unstable:
            producers.on_high_watermark(high_watermark)
            self._update_last_stable_offset()
        else:
            self.last_stable_offset = max(high_watermark, self.log_start_offset)
        if self.listeners:
            self.call_listeners()

    def _update_last_stable_offset(self) -> None:
        """Set the last stable offset: the first unstable offset, but at most the high watermark."""
        stable = self.high_watermark
        if (first := self._producers.first_unstable_offset) is not None:
            stable = min(first, stable)
        self.last_stable_offset = max(stable, self.log_start_offset)

    def call_listeners(self) -> None:
        """Call the listeners, because the offsets have moved or the log has failed."""
        for listener, argument in list(self.listeners.items()):
            listener(argument)
