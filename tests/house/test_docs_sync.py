"""What docs/sync.md shows works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sync.md"
SCRIPT, DJANGO, FIXTURE = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(*arguments: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stderr == ""
    return done.stdout


@pytest.mark.timeout(120)
def test_the_script_runs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    assert run("script.py", directory=tmp_path) == "written at offset 0\nread b'7 plums'\n"


@pytest.mark.timeout(120)
def test_the_producer_of_a_web_application_is_made_once(tmp_path: Path) -> None:
    program = (
        "from oncelog.sync import Broker, Consumer\n"
        "import types\n"
        f"{DJANGO}\n"
        "with Broker() as broker:\n"
        "    Producer = functools.partial(Producer, {'bootstrap.servers': broker.address})\n"
        "    view(types.SimpleNamespace(body=b'1'))\n"
        "    view(types.SimpleNamespace(body=b'2'))\n"
        "    assert producer() is producer()\n"
        "    producer().close()\n"
    ).replace('Producer(bootstrap_servers="127.0.0.1:9092")', "Producer()")
    (tmp_path / "web.py").write_text(program)
    assert run("web.py", directory=tmp_path) == ""


@pytest.mark.timeout(120)
def test_the_fixture_works(tmp_path: Path) -> None:
    (tmp_path / "test_topics.py").write_text(FIXTURE)
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", directory=tmp_path)
