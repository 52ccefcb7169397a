"""The cluster of one machine without Spark: programs that play its daemons begin, end and are started again."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from oncelog.cli.pipeline import pipeline

pytest.importorskip("pyspark")

from oncelog.pipeline import cluster as clusters
from oncelog.pipeline.cluster import ClusterError, StandaloneCluster
from oncelog.pipeline.session import _is_this_machine

PLAY = """#!/bin/sh
case "$1" in
*Master) echo "26/01/01 INFO Master: Starting Spark master at spark://127.0.0.1:7";;
*) [ -e "$BROKEN" ] && { echo "java.net.BindException: no such luck"; exit 3; }
   echo "26/01/01 INFO Worker: Successfully registered with master spark://127.0.0.1:7";;
esac
exec sleep 60
"""

Make = Callable[..., StandaloneCluster]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Clusters whose daemons are a script; all are stopped."""
    program = tmp_path / "spark-class"
    program.write_text(PLAY)
    program.chmod(0o755)
    environment = {**os.environ, "BROKEN": str(tmp_path / "broken")}
    monkeypatch.setattr(clusters, "_spark", lambda: (environment, str(program)))
    made: list[StandaloneCluster] = []

    def build(**given: Any) -> StandaloneCluster:
        made.append(StandaloneCluster(tmp_path / "cluster", port=0, **given))
        return made[-1]

    yield build
    for one in made:
        one.stop()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_starts_in_order_and_leaves_nothing_behind(make: Make) -> None:
    told: list[str] = []
    cluster = make(tell=told.append, cores=3, memory="2g")
    assert cluster.start() == "spark://127.0.0.1:7"
    assert told[0] == "master spark://127.0.0.1:7"
    assert sorted(told[1:]) == [f"worker {number} has registered: 3 core(s), 2g" for number in (1, 2)]
    pids = [one.pid for one in (cluster.master, *cluster.workers)]
    cluster.stop()
    assert all(gone(pid) for pid in pids)
    cluster.stop()


def test_a_worker_that_dies_is_started_again(make: Make) -> None:
    told: list[str] = []
    cluster = make(tell=told.append)
    cluster.start()
    first = cluster.workers[1].pid
    watching = threading.Thread(target=cluster.watch)
    watching.start()
    os.kill(first, signal.SIGKILL)
    until(lambda: cluster.workers[1].pid != first and cluster.workers[1].ready)
    cluster.request_stop()
    watching.join(20)
    assert "worker 2 has ended (signal 9): starting it again" in told


def test_a_worker_that_cannot_live_ends_the_cluster_with_its_reason(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "MAX_RESTARTS", 1)
    cluster = make()
    cluster.start()
    (tmp_path / "broken").touch()
    os.kill(cluster.workers[0].pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match=r"worker 1 has ended \(exit code 3\) 2 times .*BindException: no such luck"):
        cluster.watch()


def test_a_worker_that_does_not_start_is_told_with_its_reason(make: Make, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with pytest.raises(ClusterError, match=r"worker \d has ended \(exit code 3\) instead of starting.*BindException"):
        make().start()


def test_without_its_master_it_ends(make: Make) -> None:
    cluster = make()
    cluster.start()
    os.kill(cluster.master.pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match=r"the master has ended \(signal 9\)"):
        cluster.watch()


def test_a_stop_while_it_starts_is_no_failure(make: Make) -> None:
    cluster = make()
    cluster.request_stop()
    assert cluster.start() is None


def test_a_port_in_use_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the command's handlers are not for this process
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(pipeline, ["cluster", "--port", str(port)])
    assert done.exit_code == 1
    assert done.stdout == ""
    assert f"oncelog: the master cannot listen on 127.0.0.1:{port} (Address already in use)" in done.stderr
    assert "--port" in done.stderr


def test_a_cluster_without_java_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(pipeline, ["cluster", "--port", "0"])
    assert done.exit_code == 1
    assert "which has no executable bin/java: install Java 17" in done.stderr


@pytest.mark.parametrize("size", ["1", "1gb", "g", "0g", "-1g"])
def test_a_memory_that_is_none_is_refused(size: str) -> None:
    done = CliRunner().invoke(pipeline, ["cluster", f"--memory={size}"])
    assert done.exit_code == 2
    assert "is not a size such as 512m or 2g" in done.stderr


@pytest.mark.parametrize(
    ("master", "loopback"),
    [
        ("local[2]", True),
        ("local", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://10.0.0.5:7077", False),
        ("spark://localhost.example.org:7077", False),
        ("spark://127.0.0.1:7077,10.0.0.5:7077", False),
        ("yarn", False),
    ],
)
def test_the_driver_stays_on_loopback_only_where_the_master_is(master: str, loopback: bool) -> None:
    assert _is_this_machine(master) is loopback
