"""Format times and durations for a terminal."""

from __future__ import annotations

from datetime import datetime

UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def duration(ms: int) -> str:
    """Return a duration, without its sign, in its two largest units, such as `1 h 5 min`, `12 s` or `800 ms`."""
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
    """Return a local date and time as text, followed by its distance from now: `(5 s ago)` or `(in 5 s)`."""
    when = datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    return f"{when} ({duration(now_ms - at_ms)} ago)" if at_ms <= now_ms else f"{when} (in {duration(at_ms - now_ms)})"
