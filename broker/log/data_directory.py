"""Open and lock the data directory, and check whether this release may use it.

This module reads and writes `.lock`, `meta.properties`, the clean shutdown marker and `.boot-id`. It never reads
partitions or checkpoints (`checkpoints.py`).

`meta.properties` has Kafka's keys (version, cluster.id, node.id, directory.id) and `oncelog.format.level`: the level of
all formats in the directory. A directory with a newer level is refused. A directory with an older level is upgraded
level by level before anything else is read.
"""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from typing import Final

import structlog

from ..system.ports import FileLock, FileSystem, RandomIds
from .file_names import BOOT_ID, CLEAN_SHUTDOWN, LOCK, META, TEMPORARY
from .removal import unlink_all
from .small_files import read_derived, write_file

logger = structlog.get_logger(__name__)

FORMAT_LEVEL: Final = 1
"""The format level of a new directory. docs/formats.md describes each level."""

JOURNAL_LEVEL: Final = 2
"""The format level of a directory that has had a journal. A release that supports only level 1 would ignore the
journal, so it must refuse the directory."""

_UPGRADES: Final[dict[int, Callable[[FileSystem, str], None]]] = {}
"""For each level, the function that upgrades a directory to the next level. It runs again if a crash interrupts it."""

_LEVEL: Final = "oncelog.format.level"
_IGNORED: Final = frozenset(("lost+found", LOCK))
_PROBE: Final = ".probe"
_HEALTH_PROBE: Final = ".health-probe"


class DataDirectoryError(Exception):
    """The data directory cannot be used; the message says why, and how to solve the problem."""


class DataDirectory:
    """The lock and the metadata files of a data directory. Call `open` first; `close` releases the lock."""

    def __init__(self, path: str, fs: FileSystem, ids: RandomIds, node_id: int) -> None:
        self.path = path
        self.cluster_id = ""
        self.directory_id = ""
        self._properties = {_LEVEL: str(FORMAT_LEVEL)}
        self._same_boot = False
        # The partitions that no start has loaded since the operating system was started.
        self._unchecked: frozenset[str] = frozenset()
        self._fs = fs
        self._ids = ids
        self._node_id = node_id
        self._lock: FileLock | None = None

    def open(self, *, create: bool = True) -> None:
        """Create the directory if it is missing, lock it, and read or write `meta.properties`.

        Without `create`, refuse a directory without `meta.properties`, and leave nothing in it. Raises
        DataDirectoryError if the directory cannot be used, and OSError if the file system fails.
        """
        if create:
            self._make()
        elif not self._fs.exists(f"{self.path}/{META}"):
            raise DataDirectoryError(
                f"{self.path} contains no {META}, so it is not a data directory. Choose the directory that the broker"
                f" uses, mount its disk, or restore {META} if it was lost"
            )
        self._lock = self._fs.lock(self.path, LOCK)
        if self._lock is None:
            raise DataDirectoryError(
                f"{self.path} is in use by another process. Stop that process, or choose another data directory"
            )
        try:
            self._open_meta()
            boot_id = self._fs.boot_id()
            content = read_derived(self._fs, f"{self.path}/{BOOT_ID}") or b""
            recorded, *unchecked = content.decode(errors="replace").split("\n")
            self._same_boot = bool(boot_id) and recorded == boot_id
            self._unchecked = frozenset(unchecked)
        except BaseException:
            self.close()
            raise

    def same_boot(self, name: str) -> bool:
        """Whether the operating system has run without a restart since the partition `name` was last loaded.

        If so, everything that was written to the partition can be read, even if it was not synced.
        """
        return self._same_boot and name not in self._unchecked

    def record_boot(self, loaded: Set[str], not_loaded: Set[str]) -> None:
        """Record the current boot id, and the names of the partitions that no start has loaded since this boot.

        Recovery has checked the files of the `loaded` partitions for the effects of a loss of power. A start with the
        same boot id need not check them again. It must check the files of the partitions that were `not_loaded`.
        """
        unchecked = self._unchecked - loaded if self._same_boot else frozenset(not_loaded)
        if not self._same_boot or unchecked != self._unchecked:
            content = "\n".join([self._fs.boot_id(), *sorted(unchecked)])
            with suppress(OSError):  # for example a full disk: the next start checks as it does after a loss of power
                write_file(self._fs, f"{self.path}/{BOOT_ID}", content.encode())

    def in_place(self) -> bool:
        """Whether the directory is still at its path: it has neither been removed nor replaced by another directory."""
        return self._lock is None or self._lock.in_place()

    def probe(self) -> None:
        """Write, sync and remove a small file; raise OSError if the directory does not accept writes."""
        self._probe(_PROBE)

    def probe_health(self) -> None:
        """Write, sync and remove a small file for a health check. The file's name differs from that of `probe`.

        Raises OSError if the directory does not accept writes, or has been removed or replaced.
        """
        if not self.in_place():
            raise OSError(errno.ENOENT, "the data directory was removed, or replaced by another directory", self.path)
        self._probe(_HEALTH_PROBE)

    def _probe(self, name: str) -> None:
        """Write, sync and remove the file `name`."""
        write_file(self._fs, f"{self.path}/{name}", b"probe", sync=True)
        unlink_all(self._fs, [f"{self.path}/{name}"])

    def _make(self) -> None:
        """Create the directory and its missing parents, and sync each name.

        Without these syncs a loss of power could remove the directory with all its content.
        """
        missing = []
        path = self.path.rstrip("/")
        while path and not self._fs.exists(path):
            missing.append(path)
            path = path.rpartition("/")[0]
        self._fs.make_directory(self.path)
        for made in missing:
            parent = made.rpartition("/")[0] or ("/" if made.startswith("/") else ".")
            with suppress(PermissionError):  # the process may pass through this parent directory but not open it
                self._fs.sync_directory(parent)

    def close(self) -> None:
        """Release the lock, so that another process can use the directory."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    # --- meta.properties ---------------------------------------------------------------------------------------------

    def _open_meta(self) -> None:
        """Read `meta.properties` and upgrade an older directory, or write the file for a new directory."""
        path = f"{self.path}/{META}"
        if not self._fs.exists(path):
            others = sorted(set(self._fs.list(self.path)) - _IGNORED - {META + TEMPORARY})
            if others:
                raise DataDirectoryError(
                    f"{self.path} contains {others[0]!r} but no {META}, so it is not a data directory. Choose an"
                    f" empty directory, or restore {META} if it was lost"
                )
            self.cluster_id, self.directory_id = self._new_id(), self._new_id()
            self._write_meta()
            return
        properties = self._properties = _parse_properties(self._fs.read_file(path))
        level = properties.get(_LEVEL, "")
        if not level.isdigit():
            raise DataDirectoryError(
                f"{path} has no {_LEVEL}, so the directory was not created by oncelog. Choose another directory"
            )
        if int(level) < 1:
            raise DataDirectoryError(
                f"{path} contains an invalid value: {_LEVEL}={level}. Restore the file from a backup"
            )
        if int(level) > JOURNAL_LEVEL:
            raise DataDirectoryError(
                f"{self.path} has format level {level}, but this release supports only levels up to"
                f" {JOURNAL_LEVEL}: the directory was written by a newer release. Run that newer release (or a later"
                " one), or choose another directory"
            )
        self.cluster_id = properties.get("cluster.id", "")
        self.directory_id = properties.get("directory.id", "")
        if not self.cluster_id:
            raise DataDirectoryError(f"{path} has no cluster.id. Restore the file from a backup")
        for step in range(int(level), FORMAT_LEVEL):
            _UPGRADES[step](self._fs, self.path)
        if int(level) < FORMAT_LEVEL or not self.directory_id:
            self.directory_id = self.directory_id or self._new_id()
            self._write_meta(max(int(level), FORMAT_LEVEL))

    def raise_level(self, level: int) -> None:
        """Make sure that the directory has at least this format level. Raises OSError."""
        if int(self._properties[_LEVEL]) < level:
            self._write_meta(level)

    def _write_meta(self, level: int = FORMAT_LEVEL) -> None:
        """Write `meta.properties` with this format level and the current values; keep the file's other properties."""
        properties = self._properties | {
            "version": "1",
            "cluster.id": self.cluster_id,
            "node.id": str(self._node_id),
            "directory.id": self.directory_id,
            _LEVEL: str(level),
        }
        content = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
        write_file(self._fs, f"{self.path}/{META}", content.encode(), sync=True)
        self._properties = properties

    def _new_id(self) -> str:
        """Return a random id in Kafka's form: 22 characters of base64."""
        return base64.urlsafe_b64encode(self._ids.uuid()).decode().rstrip("=")

    # --- clean shutdown ----------------------------------------------------------------------------------------------

    def clean_shutdown(self) -> frozenset[str] | None:
        """Return the names of the partitions that the last clean stop could not close cleanly.

        Return None if the last stop was not clean, that is, if there is no valid clean shutdown marker.
        """
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        marker = read_derived(self._fs, path)
        if marker is None:
            return None
        try:
            content = json.loads(marker)
            if content.keys() <= {"version", "brokerEpoch", "unclean"}:
                return frozenset(content.get("unclean", ()))
        except (ValueError, AttributeError, TypeError):
            pass
        logger.warning("clean shutdown marker ignored", file=path, reason="it is damaged")
        return None

    def take_clean_shutdown(self) -> None:
        """Remove the clean shutdown marker and sync the removal, so that a crash from now on is recognised."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        if self._fs.exists(path):
            self._fs.unlink(path)
            self._fs.sync_directory(self.path)

    def write_clean_shutdown(self, unclean: Iterable[str] = ()) -> None:
        """Write and sync the clean shutdown marker. All files except those of `unclean` partitions must be on disk."""
        content: dict[str, object] = {"version": 0, "brokerEpoch": -1}
        if names := sorted(unclean):
            content["unclean"] = names
        data = json.dumps(content, separators=(",", ":")).encode()
        write_file(self._fs, f"{self.path}/{CLEAN_SHUTDOWN}", data, sync=True)


def _parse_properties(content: bytes) -> dict[str, str]:
    """Return the values of a properties file by key."""
    lines = (line.strip() for line in content.decode(errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}
