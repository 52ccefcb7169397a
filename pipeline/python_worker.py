"""Spark's Python workers, which run tasks one after the other, as the pipeline wants them."""

from __future__ import annotations

import functools
import gc


@functools.cache
def keep_what_stays() -> None:
    """Take what this process holds by now, modules above all, out of the garbage collector's sight; once per process.

    Spark collects all garbage after each task of a worker: with pyspark, pyarrow and numpy that was a fifth of what a
    worker did while it read 500 MB in four tasks, all of it looking at objects that stay.
    """
    gc.freeze()
