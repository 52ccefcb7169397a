"""Configure Spark's Python workers, which run tasks one after the other, for the pipeline."""

from __future__ import annotations

import functools
import gc


@functools.cache
def keep_what_stays() -> None:
    """Exclude all current objects of this process, mainly modules, from garbage collection, once per process.

    Spark collects all garbage after each task of a worker. With pyspark, pyarrow and numpy this took a fifth of a
    worker's time when it read 500 MB in four tasks, only to visit objects that stay.
    """
    gc.freeze()
