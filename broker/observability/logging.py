"""Write the broker's log lines with structlog to stderr, as JSON or formatted for a console.

Lines are events with fields, never sentences that contain values. Frequently executed code does not log. Logging never
raises an exception into its caller and never waits for the reader of stderr (`line_writer.py`). Lines of an event that
repeats faster than `logging.max.lines.per.second` are counted instead of written. A line longer than `MAX_LINE` is
reduced to its event, level and timestamp.

A program that has configured structlog itself keeps its configuration. Otherwise the broker's configuration applies to
the whole process, because modules below the broker log through `structlog.get_logger`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Collection, Iterator, MutableMapping
from functools import cache
from typing import Any, Final, TextIO

import structlog

from .line_writer import FileWriter, LineWriter, own_copy

MAX_VALUE: Final = 4096
"""The maximum number of characters in one field; a traceback may have `MAX_TRACEBACK`."""
MAX_TRACEBACK: Final = 16_384
MAX_LINE: Final = 32_768
BURST_S: Final = 10
"""An event that has written no line for this many seconds may write all lines that its rate allows for them at once."""
MAX_EVENTS: Final = 1000
STANDARD_ERROR: Final = 2

EventDict = MutableMapping[str, Any]


class Budget:
    """The number of lines that may be written now.

    The number grows at the rate that is passed to `take`, up to the number that this rate allows in `BURST_S` seconds.
    """

    __slots__ = ("_left", "_since")

    def __init__(self, lines_per_second: int, now: float) -> None:
        self._left = float(lines_per_second * BURST_S)
        self._since = now

    def take(self, lines_per_second: int, now: float) -> bool:
        """Take one line; return False if none is left."""
        left = self._left + (now - self._since) * lines_per_second
        self._left, self._since = min(float(lines_per_second * BURST_S), left), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class EventRate:
    """A structlog processor that drops an event's lines beyond a rate and counts them in the event's next line."""

    def __init__(self, lines_per_second: int, unlimited: Collection[str] = ()) -> None:
        """Create the processor. If `lines_per_second` is 0, there is no limit. Events in `unlimited` never have one."""
        self._rate = lines_per_second
        self._unlimited = frozenset(unlimited)
        self._budgets: dict[str, Budget] = {}
        self.suppressed: dict[str, int] = {}

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        """Return the event, or raise DropEvent if its rate is exceeded."""
        name, now = str(event.get("event")), time.monotonic()
        if not self._rate or name in self._unlimited:
            return event
        budget = self._budgets.get(name)
        if budget is None:
            if len(self._budgets) >= MAX_EVENTS:
                self._budgets.clear()
            budget = self._budgets[name] = Budget(self._rate, now)
        if not budget.take(self._rate, now):
            self.suppressed[name] = self.suppressed.get(name, 0) + 1
            raise structlog.DropEvent
        if (suppressed := self.suppressed.pop(name, 0)) > 0:
            event["suppressed"] = suppressed
        return event


class _Lines:
    """The target to which structlog passes finished lines. Each call of `debug`, `info` and so on writes one line."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        stream = self._stream or sys.stderr
        if stream is None:
            return
        if stream is sys.__stderr__:
            writer = standard_error()
            if writer is not None:
                writer.put(line)
            return
        # The program's own stream (a notebook, a test): the line is written at once, and write errors are ignored.
        with contextlib.suppress(OSError, ValueError):
            stream.write(line + "\n")
            stream.flush()

    debug = info = warning = error = critical = exception = msg


_notices: list[tuple[EventRate, Any]] = []
"""The rate and the renderer of the logger that was last created for stderr."""


@cache
def standard_error() -> LineWriter | None:
    """Return this process's only writer to stderr, or None if stderr is not open."""
    descriptor = own_copy(STANDARD_ERROR)
    return None if descriptor is None else LineWriter(descriptor, _render_notices)


def _render_notices(lost: int) -> Iterator[str]:
    for rate, render in _notices:
        if lost:
            yield render("warning", {"event": "log_lines_lost", "lines": lost})
        if rate.suppressed:
            events, rate.suppressed = rate.suppressed, {}
            yield render("warning", {"event": "log_lines_suppressed", "events": events})


def make_logger(
    level: str = "info",
    format: str = "auto",
    stream: TextIO | None = None,
    lines_per_second: int = 0,
    unlimited: Collection[str] = (),
) -> Any:
    """Return the broker's logger; `format` is auto (console on a terminal, otherwise JSON), console or json.

    `lines_per_second` limits the lines of each event that is not in `unlimited`.
    """
    target = stream or sys.stderr
    terminal = target is not None and not getattr(target, "closed", False) and target.isatty()
    console = format == "console" or (format == "auto" and terminal)
    rate = EventRate(lines_per_second, unlimited)
    finish: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _bound_values,
        _Renderer(console, colors=terminal),
    ]

    def limit(logger: Any, method: str, event: EventDict) -> EventDict:
        try:
            return rate(logger, method, event)
        except structlog.DropEvent:
            if stream is None and sys.stderr is sys.__stderr__ and (writer := standard_error()) is not None:
                writer.remind()
            raise

    def render(method: str, event: EventDict) -> str:
        line: Any = event
        for processor in finish:
            line = processor(None, method, line)
        return str(line)

    if stream is None:
        _notices[:] = [(rate, render)]
    processors = [limit, *finish]
    wrapper = structlog.make_filtering_bound_logger(getattr(logging, level.upper()))
    if not structlog.is_configured():
        structlog.configure(
            processors=processors,
            wrapper_class=wrapper,
            logger_factory=lambda *_: _Lines(stream),
            cache_logger_on_first_use=False,
        )
    return structlog.wrap_logger(_Lines(stream), processors=processors, wrapper_class=wrapper)


def make_file_logger(path: str) -> tuple[Any, FileWriter]:
    """Return a logger that appends JSON lines to a file, and the writer of the file. Raises OSError."""
    finish: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _bound_values,
        _Renderer(console=False, colors=False),
    ]

    def render_notices(lost: int) -> Iterator[str]:
        line: Any = {"event": "log_lines_lost", "lines": lost}
        for processor in finish:
            line = processor(None, "warning", line)
        if lost:
            yield line

    writer = FileWriter(path, render_notices)

    def put(logger: Any, method: str, line: Any) -> Any:
        writer.put(line)
        raise structlog.DropEvent

    wrapper = structlog.make_filtering_bound_logger(logging.INFO)
    return structlog.wrap_logger(None, processors=[*finish, put], wrapper_class=wrapper), writer


def _bound_values(logger: Any, method: str, event: EventDict) -> EventDict:
    """Shorten long text values, which may come from peers; a traceback keeps its beginning and its end."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > MAX_VALUE:
            if key != "exception":
                event[key] = f"{value[:MAX_VALUE]}… ({len(value) - MAX_VALUE} more characters)"
            elif len(value) > MAX_TRACEBACK:
                half = MAX_TRACEBACK // 2
                event[key] = f"{value[:half]}\n… ({len(value) - 2 * half} more characters)\n{value[-half:]}"
    return event


class _Renderer:
    """A processor that renders an event as one line and never fails, even if a value cannot be rendered."""

    def __init__(self, console: bool, *, colors: bool) -> None:
        self._render: Any = (
            # Tracebacks omit local variables, which may hold megabytes of a request, or secrets.
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
            if console
            else structlog.processors.JSONRenderer(default=str)
        )

    def __call__(self, logger: Any, method: str, event: EventDict) -> str:
        kept = {key: event[key] for key in ("event", "level", "timestamp") if key in event}
        try:
            line = str(self._render(logger, method, event))
        except Exception as error:
            kept["unwritable"] = type(error).__name__
            return str(self._render(logger, method, kept))
        if len(line) > MAX_LINE:
            kept["cut"] = len(line)
            return str(self._render(logger, method, kept))
        return line


class StandardLogging(logging.Handler):
    """A handler that passes the log records of libraries, from Python's `logging`, on to the broker's log."""

    def __init__(self, log: Any) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record as the event `library_message`."""
        method = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        with contextlib.suppress(Exception):  # the arguments of a record may not fit its text
            method("library_message", library=record.name, message=record.getMessage(), exc_info=record.exc_info)
