"""Configure Spark's Python workers, which run tasks one after the other, for the pipeline."""

from __future__ import annotations

import functools
import gc


@functools.cache
def freeze_gc_once() -> None:
    """Exclude all current objects of this process, mainly modules, from garbage collection, once per process.

    Spark runs a full collection after each task of a worker. Without this function, these collections took a fifth of
    the time of a worker that read 500 MB in four tasks, because they visited the objects of pyspark, pyarrow and numpy.
    """
    gc.freeze()
