"""`LineFile`: reads complete lines of a plain or gz file from a position.

In gz files, positions count decompressed bytes.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from ...errors import ConnectError
from ..line_splitter import BATCH_BYTES, LineSplitter, LongLineError
from .scanning import FileId, path_text

_CHUNK: Final = 1 << 18
_ONE_BYTE: Final = f"Not a gzipped file ({bytes([0x1F])!r})"
"""The message of BadGzipFile if only the first byte of a gzip member's magic number has been written yet."""


class FileNotReadyError(Exception):
    """Raised if an open file cannot be read now. `file` is this file."""

    def __init__(self, file: LineFile, reason: str) -> None:
        super().__init__(reason)
        self.file = file


class UnreadableFileError(FileNotReadyError):
    """Raised if the operating system cannot read a file. The text is the reason."""

    def __init__(self, file: LineFile, error: OSError) -> None:
        super().__init__(file, error.strerror or str(error))
        self.is_stale = error.errno == errno.ESTALE
        """Whether the file no longer exists on the server of a network file system (ESTALE)."""


class IncompleteFileError(FileNotReadyError):
    """Raised while a gz file is still being written: it ends too early, or its content is invalid.

    Invalid content may be valid once more of it has been written. `damage` describes it; None if the file ends too
    early.
    """

    def __init__(self, file: LineFile, damage: str | None = None) -> None:
        super().__init__(file, damage or "the gz file ends too early")
        self.damage = damage


class LineFile:
    """A plain or gz file that is open for reading.

    `ended` is True if the last call to `lines` reached the end of the file. `complete` is True once a gz file has been
    read to its end, so that no line can follow.
    """

    def __init__(self, path: str, max_line_bytes: int, compressed: bool) -> None:
        """Open the file. Its content is decompressed if it is `compressed`. Raises OSError if it cannot be opened."""
        self._name = path_text(path)
        self._max = max_line_bytes
        self.compressed = compressed
        self._raw = open(path, "rb", buffering=0)  # noqa: SIM115
        self._file: BinaryIO = gzip.GzipFile(fileobj=self._raw) if self.compressed else self._raw  # type: ignore[assignment]
        self._splitter = LineSplitter(max_line_bytes)
        """The data that has been read but not returned."""
        self._at = 0
        """The position after the data that was returned."""
        self._stamp = (-1, -1)
        """The size and modification time at the last call to `lines`."""
        self.complete = False
        self.ended = False

    def id(self) -> FileId:
        """Return the identity of the open file. Raises UnreadableFileError."""
        status = self._status()
        return FileId(status.st_dev, status.st_ino)

    def stamp(self) -> tuple[int, int]:
        """Return the current size in bytes, and the modification time in ns. Raises UnreadableFileError."""
        status = self._status()
        return status.st_size, status.st_mtime_ns

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def lines(self, position: int, limit: int) -> list[bytes]:
        """Return up to `limit` complete lines from a position, including their line ends.

        Returns fewer lines if they have BATCH_BYTES in total, or if the next line is too long. The last line of a
        complete gz file needs no line end. Raises FileNotReadyError, and ConnectError if the first line is too long.
        """
        if not self.compressed and (stamp := self.stamp()) != self._stamp:
            # The data that was read ahead may have been cut off and replaced since.
            self._stamp, self._at = stamp, -1
        self._seek(position)
        lines: list[bytes] = []
        end = position + BATCH_BYTES
        self.ended = False
        while len(lines) < limit and self._at < end:
            try:
                line = self._next()
            except LongLineError:
                if lines:
                    break
                raise ConnectError(
                    f"{self._name}: the line at byte {position} is longer than {self._max} bytes: "
                    "raise max.line.bytes, or exclude the file"
                ) from None
            if line is None:
                self.ended = True
                break
            lines.append(line)
            self._at += len(line)
        return lines

    def fingerprint(self) -> str | None:
        """Return a hash of the first line; None while the line is incomplete. Raises FileNotReadyError."""
        lines = self.lines(0, 1)
        return hashlib.sha256(lines[0]).hexdigest()[:32] if lines else None

    def has(self, position: int, line_bytes: int, crc: int) -> bool:
        """Return whether a line with this length and CRC now ends at the position. Raises FileNotReadyError."""
        start = position - line_bytes
        if self.compressed:
            self._seek(start)
            while self._splitter.size < line_bytes and (data := self._read()):
                self._splitter.feed(data)
            line = self._splitter.peek()[:line_bytes]
        else:
            with self._errors_mapped():
                line = os.pread(self._raw.fileno(), line_bytes, start)
        return len(line) == line_bytes and zlib.crc32(line) == crc

    def still_has(self, position: int, lines: list[bytes]) -> bool:
        """Return whether a plain file has these lines at a position; True for a gz file. Raises FileNotReadyError."""
        data = b"".join(lines)
        return self.compressed or self.has(position + len(data), len(data), zlib.crc32(data))

    def crc(self, end: int) -> int:
        """Return the CRC of the content before a position, or of the whole file if it is shorter.

        Raises FileNotReadyError.
        """
        crc = 0
        for data in self.chunks():
            crc = zlib.crc32(data[:end], crc)
            end -= len(data)
            if end <= 0:
                break
        return crc

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks from the start. Raises FileNotReadyError."""
        self._seek(0)
        while data := self._splitter.take() or self._read():
            self._at += len(data)
            yield data

    def _status(self) -> os.stat_result:
        with self._errors_mapped():
            return os.fstat(self._raw.fileno())

    def _next(self) -> bytes | None:
        """Return the next line, or None if the file ends before the end of a line."""
        while (line := self._splitter.next()) is None and (data := self._read()):
            self._splitter.feed(data)
        if line is None and self.complete:
            return self._splitter.take() or None
        return line

    def _seek(self, position: int) -> None:
        if position == self._at:
            return
        data = self._splitter.take()
        if self.compressed and position > self._at:
            while self._at + len(data) < position:
                self._at += len(data)
                if not (data := self._read()):
                    return
            self._splitter.feed(data[position - self._at :])
        else:
            with self._errors_mapped():
                self._file.seek(position)
            self.complete = False
        self._at = position

    def _read(self) -> bytes:
        with self._errors_mapped():
            data = self._file.read1(_CHUNK) if isinstance(self._file, gzip.GzipFile) else self._file.read(_CHUNK)
        self.complete = self.compressed and not data
        return bytes(data)

    @contextmanager
    def _errors_mapped(self) -> Iterator[None]:
        try:
            yield
        except EOFError:
            raise IncompleteFileError(self) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise IncompleteFileError(self, None if str(error) == _ONE_BYTE else str(error)) from error
        except OSError as error:
            raise UnreadableFileError(self, error) from error


def is_compressed(path: str) -> bool:
    """Return whether a path ends with .gz."""
    return path.endswith(".gz")
