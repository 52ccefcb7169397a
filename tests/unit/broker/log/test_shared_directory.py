"""The sync of a directory that many logs share: one serves all whose names were there when it began."""

from __future__ import annotations

import threading

from oncelog.broker.log.shared_directory import SharedDirectory
from support.faulty_filesystem import FaultyFileSystem


def test_a_sync_covers_the_names_made_before_it_and_none_made_while_it_runs() -> None:
    fs = FaultyFileSystem()
    fs.make_directory("/data")
    shared = SharedDirectory(fs, "/data", threading.Lock())
    syncs: list[int] = []
    first, second = shared.changed(), shared.changed()
    during: list[int] = []

    def note(operation: str, path: str) -> None:
        if operation == "sync_directory":
            syncs.append(len(syncs))
            if not during:
                during.append(shared.changed())

    fs.before = note
    shared.sync(second)
    shared.sync(first)
    assert len(syncs) == 1, "one sync serves both"
    shared.sync(during[0])
    assert len(syncs) == 2, "its name was made after the first sync had begun"
