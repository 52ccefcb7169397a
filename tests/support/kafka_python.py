"""Marks for tests that use kafka-python, which sometimes leaves a socket open when a client is closed.

The garbage collector then finds the socket in any later test of the same process, and its warning fails that test.
"""

from __future__ import annotations

from typing import Final

import pytest

LEAVES_SOCKETS: Final = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("collected_sockets"),
]
