"""Show the files of a data directory as they will be after the redo of the journal, without changing them."""

from __future__ import annotations

from collections.abc import Sequence

from ..system.ports import File, FileSystem
from .file_names import LOG, segment_name
from .journal_format import Entry
from .journal_redo import LeftJournal
from .read_only_files import ReadOnlyFile, ReadOnlyFileSystem


class RedoneFile(ReadOnlyFile):
    """A segment's `.log` file, read as if the entries of the journal had been written into it."""

    __slots__ = ("_entries",)

    def __init__(self, file: File, path: str, entries: Sequence[Entry]) -> None:
        super().__init__(file, path)
        self._entries = entries

    def read_at(self, size: int, position: int) -> bytes:
        end = min(position + size, self.size())
        content = bytearray(super().read_at(size, position).ljust(max(end - position, 0), b"\0"))
        for entry in self._entries:
            start, stop = max(entry.position, position), min(entry.position + entry.size, end)
            if entry.content is not None and start < stop:
                piece = entry.content[start - entry.position : stop - entry.position]
                content[start - position : stop - position] = piece
        return bytes(content)

    def size(self) -> int:
        ends = (entry.position + entry.size for entry in self._entries if entry.content is not None)
        return max(super().size(), *ends, 0)


class RedoneFileSystem(ReadOnlyFileSystem):
    """The file system `fs`, read as if the entries of `journal` had been written into the files. It is read-only."""

    __slots__ = ("_patches",)

    def __init__(self, fs: FileSystem, journal: LeftJournal) -> None:
        super().__init__(fs)
        self._patches: dict[str, list[Entry]] = {}
        for name, entries in journal.entries.items():
            for entry in entries:
                path = f"{journal.directory}/{name}/{segment_name(entry.base_offset, LOG)}"
                self._patches.setdefault(path, []).append(entry)

    def open(self, path: str, *, create: bool = False) -> ReadOnlyFile:
        file = super().open(path, create=create)
        return RedoneFile(file, path, self._patches[path]) if path in self._patches else file

    def file_size(self, path: str) -> int:
        if path not in self._patches:
            return super().file_size(path)
        file = self.open(path)
        try:
            return file.size()
        finally:
            file.close()
