"""The broker's log lines: structlog, to stderr, as JSON or for a console.

Lines are events with fields, never sentences with values inside. Nothing on the hot path logs. A program that has
configured structlog itself keeps its configuration; else ours becomes the process's, because modules below the broker
log through `structlog.get_logger`.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog


class _StandardError:
    """stderr as it is at the moment of writing: tests and notebooks replace it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def make_logger(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> Any:
    """The broker's logger; `format` is auto (console on a terminal, else JSON), console or json."""
    terminal = (stream or sys.stderr).isatty()
    console = format == "console" or (format == "auto" and terminal)
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if console:
        processors.append(structlog.dev.ConsoleRenderer(colors=terminal))
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    out: Any = stream if stream is not None else _StandardError()
    wrapper = structlog.make_filtering_bound_logger(getattr(logging, level.upper()))
    if not structlog.is_configured():
        structlog.configure(
            processors=processors,
            wrapper_class=wrapper,
            logger_factory=lambda *_: structlog.PrintLogger(out),
            cache_logger_on_first_use=False,
        )
    return structlog.wrap_logger(structlog.PrintLogger(out), processors=processors, wrapper_class=wrapper)
