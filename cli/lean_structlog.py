"""Import structlog without rich.

structlog imports rich, if it is installed, to draw tracebacks on a terminal. The broker's log writes tracebacks as
plain text, so a broker process would spend 5 MB of memory on something that it never uses.
"""

from __future__ import annotations

import sys


def import_structlog_without_rich() -> None:
    """Import structlog as if rich were not installed. A later `import rich` works as usual."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` raise ImportError
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
