"""Run a PostgreSQL server of Debian's packages in a temporary directory. Tests can kill it and start it again.

`with PostgresServer() as server:` gives .host and .port, and `execute` runs SQL. Tests are skipped if no server is
installed: apt-get install postgresql.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest


def binaries() -> Path | None:
    """Return the directory with initdb and postgres, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).resolve().parent


class PostgresServer:
    """A server with logical replication, which accepts every connection from 127.0.0.1 without a password."""

    def __init__(self) -> None:
        binary = binaries()
        if binary is None:
            pytest.skip("needs a PostgreSQL server: apt-get install postgresql")
        # Not below pytest's directory, which users other than root cannot open.
        self._directory = Path(tempfile.mkdtemp(prefix="oncelog-postgres-"))
        self._binaries, self._data = binary, self._directory / "data"
        self.host = "127.0.0.1"
        with socket.socket() as probe:
            probe.bind((self.host, 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._user = self._unprivileged(self._directory)

    def __enter__(self) -> PostgresServer:
        command = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust", "-N"]
        subprocess.run([*self._user, *command, "-E", "UTF8"], check=True, capture_output=True)
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(
                f"port = {self.port}\nlisten_addresses = '{self.host}'\nunix_socket_directories = ''\n"
                "wal_level = logical\nfsync = off\nmax_replication_slots = 20\nmax_wal_senders = 20\n"
                "wal_receiver_status_interval = 1\nautovacuum = off\nshared_buffers = 16MB\n"
            )
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill9()
        shutil.rmtree(self._directory)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = (self._directory / "log").open("ab")
        self._process = subprocess.Popen(
            [*self._user, str(self._binaries / "postgres"), "-D", str(self._data)],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", self.host, "-p", str(self.port), "-t", "1"]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process.poll() is None, (self._directory / "log").read_text()

    def kill9(self) -> None:
        """Kill all processes of the server."""
        if self._process is not None:
            processes = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
            psutil.wait_procs(processes)
            self._process = None
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def begin_timeline(self) -> None:
        """Start the server again on a new timeline, as after the restore of a backup."""
        self.execute("ALTER SYSTEM SET restore_command = 'false'")
        self.kill9()
        (self._data / "recovery.signal").touch()
        shutil.chown(self._data / "recovery.signal", self._data.owner())
        self.start()
        while self.execute("SELECT pg_is_in_recovery()")[0][0]:
            pass

    def connect(self, database: str = "postgres") -> Any:
        """Return a connection that commits each statement."""
        import psycopg

        return psycopg.connect(
            host=self.host, port=self.port, user="postgres", dbname=database, autocommit=True, connect_timeout=5
        )

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements, and return the rows of the last one."""
        with self.connect(database) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def _unprivileged(self, directory: Path) -> list[str]:
        """Return a command prefix that runs commands as a user other than root, because PostgreSQL refuses root.

        The other user becomes the owner of the directory.
        """
        if os.getuid() != 0:
            return []
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            user = pwd.getpwnam("nobody")
        os.chown(directory, user.pw_uid, user.pw_gid)
        ids = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
        return [str(shutil.which("setpriv")), *ids]
