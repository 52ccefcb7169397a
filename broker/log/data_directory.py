"""The data directory as a whole: whose it is, whether it may be opened, what its checkpoints say.

Owns `.lock`, `meta.properties`, the clean shutdown marker and the checkpoint files. Never looks into partitions.

`meta.properties` has Kafka's keys (version, cluster.id, node.id, directory.id) and `oncelog.format.level`: the level of
all formats in the directory. A newer level is refused, an older one is upgraded, step by step, before anything is read.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from ..ports import FileLock, FileSystem, RandomIds
from .file_names import CLEAN_SHUTDOWN, LOCK, META
from .small_files import decode_checkpoint, encode_checkpoint, write_file

FORMAT_LEVEL: Final = 1
"""What this release writes. docs/formats.md says what each level means."""

_UPGRADES: Final[dict[int, Callable[[FileSystem, str], None]]] = {}
"""Level → what makes a directory of that level one of the next level; must bear being run again after a crash."""

_LEVEL: Final = "oncelog.format.level"
_IGNORED: Final = frozenset(("lost+found", LOCK))


class DataDirectoryError(Exception):
    """The data directory can't be used; the message says why and what to do."""


class DataDirectory:
    """See the module. `open` first; `close` gives the lock back."""

    def __init__(self, path: str, fs: FileSystem, ids: RandomIds, node_id: int) -> None:
        self.path = path
        self.cluster_id = ""
        self.directory_id = ""
        self._fs = fs
        self._ids = ids
        self._node_id = node_id
        self._lock: FileLock | None = None

    def open(self) -> None:
        """Make the directory if it is missing, lock it and read or write meta.properties. Raises DataDirectoryError."""
        self._make()
        self._lock = self._fs.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            raise DataDirectoryError(
                f"{self.path} is in use by another process. Stop that broker, or give this one another directory"
            )
        try:
            self._open_meta()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        """Make the directory and what is missing above it, each name on disk: else a power failure takes it all."""
        missing = []
        path = self.path.rstrip("/")
        while path and not self._fs.exists(path):
            missing.append(path)
            path = path.rpartition("/")[0]
        self._fs.make_directory(self.path)
        for made in missing:
            parent = made.rpartition("/")[0] or ("/" if made.startswith("/") else ".")
            with suppress(PermissionError):  # somebody else's directory, which we may enter only
                self._fs.sync_directory(parent)

    def close(self) -> None:
        """Let another process have the directory."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    # --- meta.properties ---------------------------------------------------------------------------------------------

    def _open_meta(self) -> None:
        path = f"{self.path}/{META}"
        if not self._fs.exists(path):
            others = sorted(set(self._fs.list(self.path)) - _IGNORED - {META + ".tmp"})
            if others:
                raise DataDirectoryError(
                    f"{self.path} holds {others[0]!r} but no {META}: it is no data directory. Give an empty directory,"
                    f" or bring {META} back if it was lost"
                )
            self.cluster_id, self.directory_id = self._new_id(), self._new_id()
            self._write_meta({})
            return
        properties = _parse_properties(self._fs.read_file(path))
        level = properties.get(_LEVEL, "")
        if not level.isdigit():
            raise DataDirectoryError(
                f"{path} has no {_LEVEL}: the directory was not made by oncelog. Give another directory"
            )
        if int(level) > FORMAT_LEVEL:
            raise DataDirectoryError(
                f"{self.path} has format level {level}, this release knows {FORMAT_LEVEL}: a newer release wrote it."
                " Run that release (or a later one), or give another directory"
            )
        self.cluster_id = properties.get("cluster.id", "")
        self.directory_id = properties.get("directory.id", "")
        if not self.cluster_id:
            raise DataDirectoryError(f"{path} has no cluster.id: bring the file back from a copy")
        for step in range(int(level), FORMAT_LEVEL):
            _UPGRADES[step](self._fs, self.path)
        if int(level) < FORMAT_LEVEL or not self.directory_id:
            self.directory_id = self.directory_id or self._new_id()
            self._write_meta(properties)

    def _write_meta(self, properties: dict[str, str]) -> None:
        properties = properties | {
            "version": "1",
            "cluster.id": self.cluster_id,
            "node.id": str(self._node_id),
            "directory.id": self.directory_id,
            _LEVEL: str(FORMAT_LEVEL),
        }
        content = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
        write_file(self._fs, f"{self.path}/{META}", content.encode(), sync=True)

    def _new_id(self) -> str:
        return base64.urlsafe_b64encode(self._ids.uuid()).decode().rstrip("=")

    # --- clean shutdown ----------------------------------------------------------------------------------------------

    def take_clean_shutdown(self) -> bool:
        """Whether the last stop was clean. The marker is gone, on disk, when this returns: the next crash is one."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        if not self._fs.exists(path):
            return False
        self._fs.unlink(path)
        self._fs.sync_directory(self.path)
        return True

    def write_clean_shutdown(self) -> None:
        """Everything else is on disk: say so."""
        write_file(self._fs, f"{self.path}/{CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":-1}', sync=True)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def read_offsets(self, name: str) -> dict[tuple[str, int], int]:
        """A checkpoint file of offsets by partition; empty when it is missing or damaged."""
        path = f"{self.path}/{name}"
        if not self._fs.exists(path):
            return {}
        try:
            entries = decode_checkpoint(self._fs.read_file(path), 3)
            return {(topic, int(partition)): int(offset) for topic, partition, offset in entries}
        except ValueError:
            return {}

    def write_offsets(self, name: str, offsets: Iterable[tuple[str, int, int]]) -> None:
        """Replace a checkpoint file of (topic, partition, offset); it is on disk when this returns."""
        write_file(self._fs, f"{self.path}/{name}", encode_checkpoint(sorted(offsets)), sync=True)


def _parse_properties(content: bytes) -> dict[str, str]:
    lines = (line.strip() for line in content.decode(errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}
