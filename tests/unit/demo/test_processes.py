"""Processes that tests and demo start and kill: none is left behind, and every wait ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from oncelog.demo.processes import HIGHEST_PORT, LOWEST_PORT, ChildProcess, StartFailed, free_port


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ChildProcess]:
    """A process that runs until it is ended."""
    process = ChildProcess("http.server", ["--bind", "127.0.0.1", "0"], tmp_path / "logs" / "server.log")
    yield process
    process.close()


def test_killed_process_is_gone_and_can_be_started_again(server: ChildProcess) -> None:
    server.spawn()
    first = server.pid
    assert server.running
    server.kill9()
    assert not server.running
    assert not alive(first)
    server.spawn()
    assert server.pid != first
    assert server.starts == 2


def test_running_process_is_not_started_twice(server: ChildProcess) -> None:
    server.spawn()
    with pytest.raises(RuntimeError, match="already running"):
        server.spawn()


def test_closed_process_is_gone_and_stays_gone(server: ChildProcess) -> None:
    server.spawn()
    pid = server.pid
    server.close()
    assert not alive(pid)
    with pytest.raises(StartFailed, match="cannot be started"):
        server.spawn()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.pid


@pytest.mark.parametrize("with_children", [True, False])
def test_children_are_killed_with_their_parent_if_so_wanted(tmp_path: Path, with_children: bool) -> None:
    (tmp_path / "parent.py").write_text(
        "import signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(child.pid, flush=True)\n"
        "signal.pause()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = ChildProcess("parent", [], tmp_path / "log", environment, with_children=with_children)
    process.spawn()
    child = psutil.Process(int(process.read_line(30)))
    process.kill9()
    assert not alive_for(child) if with_children else child.is_running()
    if not with_children:
        child.kill()


def alive_for(process: psutil.Process, timeout: float = 10) -> bool:
    """Whether it is still there in the end; a child that nobody waits for counts as gone."""
    gone, _ = psutil.wait_procs([process], timeout)
    return not gone and process.status() != psutil.STATUS_ZOMBIE


def test_end_by_itself_and_output_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("import sys\n\nprint('done')\nsys.exit(3)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = ChildProcess("short", [], tmp_path / "log", environment, output=tmp_path / "out")
    process.spawn()
    assert process.wait(30) == 3
    assert (tmp_path / "out").read_text() == "done\n"
    process.spawn()
    assert process.wait(30) == 3
    assert (tmp_path / "out").read_text() == "done\ndone\n"


def test_silence_is_a_failure_in_time(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text("import signal\n\nsignal.pause()\n")
    process = ChildProcess("silent", [], tmp_path / "log", {**os.environ, "PYTHONPATH": str(tmp_path)})
    process.spawn()
    try:
        with pytest.raises(StartFailed, match=r"printed nothing for 0\.05 s"):
            process.read_line(0.05)
    finally:
        process.close()


def test_end_instead_of_a_line_tells_code_and_last_words(tmp_path: Path) -> None:
    process = ChildProcess("http.server", ["--no-such-option"], tmp_path / "log")
    process.spawn()
    with pytest.raises(StartFailed, match=r"(?s)exit code 2: .*no-such-option"):
        process.read_line(30)
    assert process.terminate() == 2


def test_ending_what_never_ran_is_nothing(tmp_path: Path) -> None:
    process = ChildProcess("http.server", [], tmp_path / "log")
    process.kill9()
    assert process.terminate() == 0
    assert process.last_words() == ""


def test_free_port_is_none_that_an_outgoing_connection_could_get() -> None:
    assert all(LOWEST_PORT <= free_port() < HIGHEST_PORT for _ in range(20))
