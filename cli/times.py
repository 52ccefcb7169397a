"""How moments and durations read on a terminal."""

from __future__ import annotations

from datetime import datetime

UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def duration(ms: int) -> str:
    """A duration in its two largest units: `1 h 5 min`, `12 s`; `800 ms` below a second."""
    ms = abs(ms)
    if ms < 1000:
        return f"{ms} ms"
    parts: list[str] = []
    for name, size in UNITS:
        count, ms = divmod(ms, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def moment(at_ms: int, now_ms: int) -> str:
    """A time of day with how long ago that is, or how far ahead."""
    when = datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    return f"{when} ({duration(now_ms - at_ms)} ago)" if at_ms <= now_ms else f"{when} (in {duration(at_ms - now_ms)})"
