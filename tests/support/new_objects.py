"""Find objects that a test has left in memory, whatever other tests and imports have left before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def new_objects() -> Iterator[Callable[..., list[object]]]:
    """Within the block, `alive(*kinds)` returns the living objects of these classes that were made in the block."""
    # `get_objects` then looks only through what is made from now on. The rest stays frozen: later full collections
    # would otherwise go through all tests that pytest has collected (conftest.py).
    gc.freeze()
    yield lambda *kinds: [thing for thing in gc.get_objects() if type(thing) in kinds]
