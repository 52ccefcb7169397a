"""`LineFile`: reads complete lines of a plain or gz file from a position.

In gz files, positions count decompressed bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from ...errors import ConnectError
from .scanning import FileId

_CHUNK: Final = 1 << 18


class IncompleteFileError(Exception):
    """Raised while a gz file is still being written."""


class LineFile:
    """An open file. `complete` is True once a gz file was read to its end, so that no line can follow."""

    def __init__(self, path: str, max_line_bytes: int) -> None:
        """Open the file; raises OSError."""
        self.path = path
        self._max = max_line_bytes
        self.compressed = path.endswith(".gz")
        self._raw = open(path, "rb", buffering=0)  # noqa: SIM115
        self._file: BinaryIO = gzip.GzipFile(fileobj=self._raw) if self.compressed else self._raw  # type: ignore[assignment]
        self._rest = b""
        self._at = 0
        self.complete = False

    def id(self) -> FileId:
        """Return the identity of the open file."""
        status = os.fstat(self._raw.fileno())
        return FileId(status.st_dev, status.st_ino)

    def stamp(self) -> tuple[int, int]:
        """Return the current size in bytes, and the modification time in ns."""
        status = os.fstat(self._raw.fileno())
        return status.st_size, status.st_mtime_ns

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def lines(self, position: int, limit: int) -> list[bytes]:
        """Return up to `limit` complete lines from a position, including their line ends.

        The last line of a complete gz file needs no line end. Raises ConnectError for a line that is too long, and
        IncompleteFileError for a gz file that is still being written.
        """
        self._seek(position)
        lines = self._split()
        while len(lines) < limit and (data := self._read()):
            self._rest += data
            lines = self._split()
        lines = lines[:limit]
        taken = sum(map(len, lines))
        if self.complete and len(lines) < limit and len(self._rest) > taken:
            lines.append(self._rest[taken:])
            taken = len(self._rest)
        self._rest, self._at = self._rest[taken:], self._at + taken
        return lines

    def fingerprint(self) -> str | None:
        """Return a hash of the first line; None while the line is incomplete."""
        lines = self.lines(0, 1)
        return hashlib.sha256(lines[0]).hexdigest()[:32] if lines else None

    def has(self, position: int, line_bytes: int, crc: int) -> bool:
        """Return whether a line with this length and CRC now ends at the position.

        Raises IncompleteFileError for a gz file that is still being written.
        """
        start = position - line_bytes
        if self.compressed:
            self._seek(start)
            while len(self._rest) < line_bytes and (data := self._read()):
                self._rest += data
            line = self._rest[:line_bytes]
        else:
            line = os.pread(self._raw.fileno(), line_bytes, start)
        return len(line) == line_bytes and zlib.crc32(line) == crc

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks from the start.

        Raises IncompleteFileError for a gz file that is still being written.
        """
        self._seek(0)
        while data := self._rest or self._read():
            self._at += len(data)
            self._rest = b""
            yield data

    def _split(self) -> list[bytes]:
        lines = self._rest.splitlines(keepends=True)
        if any(len(line) > self._max for line in lines):
            before = sum(map(len, itertools.takewhile(lambda line: len(line) <= self._max, lines)))
            raise ConnectError(
                f"{self.path}: the line at byte {self._at + before} is longer than {self._max} bytes: raise "
                "max.line.bytes, or exclude the file"
            )
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # the line is not complete yet
        return lines

    def _seek(self, position: int) -> None:
        if self.compressed and position >= self._at:
            while self._at + len(self._rest) < position and (data := self._read()):
                self._at += len(self._rest)
                self._rest = data
            skipped = min(position - self._at, len(self._rest))
            self._at, self._rest = self._at + skipped, self._rest[skipped:]
        elif position != self._at:
            with self._gz_errors():
                self._file.seek(position)
            self._at, self._rest, self.complete = position, b"", False

    def _read(self) -> bytes:
        with self._gz_errors():
            data = self._file.read1(_CHUNK) if isinstance(self._file, gzip.GzipFile) else self._file.read(_CHUNK)
        self.complete = self.compressed and not data
        return bytes(data)

    @contextmanager
    def _gz_errors(self) -> Iterator[None]:
        try:
            yield
        except EOFError:
            raise IncompleteFileError from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ConnectError(
                f"{self.path} is damaged: {error}. Replace the file, or exclude it (setting exclude)"
            ) from error
