"""The data directory as a whole: whose it is, and whether it may be opened.

Owns `.lock`, `meta.properties`, the clean shutdown marker and `.boot-id`. Never looks into partitions, nor into the
checkpoints (`checkpoints.py`).

`meta.properties` has Kafka's keys (version, cluster.id, node.id, directory.id) and `oncelog.format.level`: the level of
all formats in the directory. A newer level is refused, an older one is upgraded, step by step, before anything is read.
"""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import structlog

from ..ports import FileLock, FileSystem, RandomIds
from .file_names import BOOT_ID, CLEAN_SHUTDOWN, LOCK, META, TEMPORARY
from .removal import unlink_all
from .small_files import write_file

logger = structlog.get_logger(__name__)

FORMAT_LEVEL: Final = 1
"""What this release writes. docs/formats.md says what each level means."""

_UPGRADES: Final[dict[int, Callable[[FileSystem, str], None]]] = {}
"""Level → what makes a directory of that level one of the next level; must bear being run again after a crash."""

_LEVEL: Final = "oncelog.format.level"
_IGNORED: Final = frozenset(("lost+found", LOCK))
_PROBE: Final = ".probe"
_HEALTH_PROBE: Final = ".health-probe"


class DataDirectoryError(Exception):
    """The data directory cannot be used; the message says why and what to do."""


class DataDirectory:
    """The files of a data directory that belong to no partition. `open` first; `close` gives the lock back.

    `same_boot`: the system has not been restarted since the last start of a broker here, so everything that was written
    is still readable, synced or not.
    """

    def __init__(self, path: str, fs: FileSystem, ids: RandomIds, node_id: int) -> None:
        self.path = path
        self.cluster_id = ""
        self.directory_id = ""
        self.same_boot = False
        self._fs = fs
        self._ids = ids
        self._node_id = node_id
        self._lock: FileLock | None = None

    def open(self) -> None:
        """Make the directory if it is missing, lock it and read or write meta.properties. Raises DataDirectoryError."""
        self._make()
        self._lock = self._fs.lock(self.path, LOCK)
        if self._lock is None:
            raise DataDirectoryError(
                f"{self.path} is in use by another process. Stop that broker, or give this one another directory"
            )
        try:
            self._open_meta()
            boot_id = self._fs.boot_id()
            path = f"{self.path}/{BOOT_ID}"
            self.same_boot = bool(boot_id) and self._fs.exists(path) and self._fs.read_file(path) == boot_id.encode()
        except BaseException:
            self.close()
            raise

    def record_boot(self) -> None:
        """Recovery has looked at everything that a loss of power may have left: the next start need not."""
        if not self.same_boot:
            with suppress(OSError):  # a full disk: without it the next start looks as after a loss of power
                write_file(self._fs, f"{self.path}/{BOOT_ID}", self._fs.boot_id().encode())

    def in_place(self) -> bool:
        """Whether the directory is still at its path. False: it was removed, or another one is there."""
        return self._lock is None or self._lock.in_place()

    def probe(self) -> None:
        """Write, sync and remove a small file; raises OSError when the directory takes no writes."""
        self._probe(_PROBE)

    def probe_health(self) -> None:
        """Do as `probe` for a health check, which may come at the same time; raises OSError."""
        if not self.in_place():
            raise OSError(errno.ENOENT, "it was removed, or replaced by another directory", self.path)
        self._probe(_HEALTH_PROBE)

    def _probe(self, name: str) -> None:
        write_file(self._fs, f"{self.path}/{name}", b"probe", sync=True)
        unlink_all(self._fs, [f"{self.path}/{name}"])

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
            others = sorted(set(self._fs.list(self.path)) - _IGNORED - {META + TEMPORARY})
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
        if int(level) < 1:
            raise DataDirectoryError(f"{path} says {_LEVEL}={level}, which never was: bring the file back from a copy")
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

    def clean_shutdown(self) -> frozenset[str] | None:
        """The partitions that the last stop did not close cleanly; None when it was no clean stop."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        if not self._fs.exists(path):
            return None
        try:
            content = json.loads(self._fs.read_file(path))
            if content.keys() <= {"version", "brokerEpoch", "unclean"}:
                return frozenset(content.get("unclean", ()))
        except (ValueError, AttributeError, TypeError):
            pass
        logger.warning("clean shutdown marker ignored", file=path, reason="it is damaged")
        return None

    def take_clean_shutdown(self) -> None:
        """Remove the marker; it is gone, on disk, when this returns: the next crash is one."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        if self._fs.exists(path):
            self._fs.unlink(path)
            self._fs.sync_directory(self.path)

    def write_clean_shutdown(self, unclean: Iterable[str] = ()) -> None:
        """Everything else is on disk, except in the `unclean` partitions: say so."""
        content: dict[str, object] = {"version": 0, "brokerEpoch": -1}
        if names := sorted(unclean):
            content["unclean"] = names
        data = json.dumps(content, separators=(",", ":")).encode()
        write_file(self._fs, f"{self.path}/{CLEAN_SHUTDOWN}", data, sync=True)


def _parse_properties(content: bytes) -> dict[str, str]:
    lines = (line.strip() for line in content.decode(errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}
