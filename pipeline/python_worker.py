"""Spark's Python workers, which run tasks one after the other, as the pipeline wants them."""

from __future__ import annotations

import functools
import gc


@functools.cache
def keep_what_stays() -> None:
    """Take what this process holds by now, modules above all, out of the garbage collector's sight; once per process.

    Spark collects all garbage after each task of a worker: with pyspark, pyarrow and numpy that is a tenth of a second
    of looking at objects that stay, half the time of a task that reads 50 MB.
    """
    gc.freeze()
