"""How foreseen failures read on the terminal: one sentence that says what, where and what to do."""

from __future__ import annotations


def explain(error: BaseException) -> str | None:
    """The sentence for a failure of broker, log or client; None when it is not one that we foresee."""
    from ..protocol.errors import KafkaError

    if isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return None
