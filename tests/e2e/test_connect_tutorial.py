"""The tutorial of docs/connect.md works as it stands there."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.broker import BrokerProcess

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "connect.md"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.oncelog_only(reason="the tutorial begins with a broker of its own")
def test_the_tutorial_runs(tmp_path: Path) -> None:
    (section,) = re.findall(r"^## A tutorial.*?\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    files = dict(re.findall(r"`(\S+\.properties)`:?\n\n```properties\n(.*?)```", section, re.DOTALL))
    scripts = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert (list(files), len(scripts)) == (["worker.properties", "lines.properties"], 3)
    (tmp_path / "work").mkdir()
    with BrokerProcess(tmp_path) as broker:
        url = f"http://127.0.0.1:{free_port()}"
        for name, text in files.items():
            adapted = text.replace("127.0.0.1:9092", broker.address).replace("http://127.0.0.1:8083", url)
            (tmp_path / "work" / name).write_text(adapted)
        done = subprocess.run(
            ["bash", "-e", "-c", "trap 'kill -9 $!' EXIT\n" + "".join(scripts)],
            cwd=tmp_path / "work",
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "ONCELOG_BOOTSTRAP": broker.address,
                "ONCELOG_CONNECT_URL": url,
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert "4000 lines, each once, in order\n" in done.stdout
    assert '{"filename":"app.log"}\t{"position":18893}\n' in done.stdout
