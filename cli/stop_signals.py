"""Name the signals that stop a server process cleanly."""

from __future__ import annotations


def stop_signals() -> list[int]:
    """Return SIGTERM, SIGINT and SIGHUP, without SIGHUP if the process ignores it, as under nohup."""
    import signal

    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if ignored else [signal.SIGHUP])]
