"""What users get: the wheel, in an empty virtual environment, runs the broker."""

from __future__ import annotations

import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.mark.timeout(600)
def test_wheel_installs_into_an_empty_environment_and_serves(tmp_path: Path) -> None:
    source = tmp_path / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in tracked.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    wheels = tmp_path / "wheels"
    subprocess.run([sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source)], check=True)
    (wheel,) = wheels.glob("oncelog-*.whl")

    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, *PIP, "install", str(wheel)], check=True)
    with zipfile.ZipFile(wheel) as archive:
        folders = {Path(name).parts[1] for name in archive.namelist() if name.startswith("oncelog/")}
    assert not folders & {"tests", "bench", "examples", "docs", ".github"}, "only the packages are installed"

    oncelog = str(tmp_path / "venv" / "bin" / "oncelog")
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [oncelog, "serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=tmp_path,
        ) as broker,
    ):
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            assert ready.startswith("ready "), (tmp_path / "log").read_text()
            listed = subprocess.run(
                [oncelog, "topic", "list", "--bootstrap", ready.split()[1]],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                cwd=tmp_path,
            )
            assert listed.returncode == 0, listed.stderr
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(30) == 0
        finally:
            broker.kill()
