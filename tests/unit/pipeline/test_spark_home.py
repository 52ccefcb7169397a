"""The directory for SPARK_HOME from which Spark's Python processes import pyspark with its bytecode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")

from oncelog.pipeline.session import _home  # noqa: E402
from oncelog.pipeline.spark_home import light_home  # noqa: E402

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_has_all_of_pyspark_but_the_archive() -> None:
    home = light_home()
    assert home is not None
    there = {entry.name: entry.resolve() for entry in Path(home).iterdir()}
    wanted = {entry.name: entry.resolve() for entry in INSTALLED.iterdir()}
    assert there.pop("bin") == INSTALLED.resolve() / "bin"
    del wanted["python"], wanted["__pycache__"], wanted["bin"]
    assert there == wanted


def test_it_is_made_once_and_completed() -> None:
    home = light_home()
    assert home is not None
    (Path(home) / "jars").unlink()
    assert light_home() == home
    assert (Path(home) / "jars").is_dir()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPARK_HOME", "/opt/spark"),
        ("PYSPARK_PYTHON", "/opt/python/bin/python"),
        ("PYSPARK_DRIVER_PYTHON", "/opt/python/bin/python"),
    ],
)
def test_what_the_user_has_chosen_stays(name: str, value: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert light_home() is None
    assert not cache.exists()


def test_pyspark_that_is_not_installed_keeps_its_archive(tmp_path: Path, cache: Path) -> None:
    """As in a distribution of Spark, whose Python modules the user has put on the import path."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "4.2.1"')
    code = "from oncelog.pipeline.spark_home import light_home; print(light_home())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "None\n"
    assert not cache.exists()


def test_without_a_place_for_it_spark_starts_as_usual(cache: Path) -> None:
    cache.touch()
    assert light_home() is None


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077"])
def test_it_is_set_only_while_spark_starts(master: str) -> None:
    home = light_home()
    with _home(master, {"spark.driver.memory": "1g"}):
        assert os.environ["SPARK_HOME"] == home
    assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:443"])
def test_other_cluster_managers_find_the_archive(master: str) -> None:
    with _home(master, {}):
        assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize("name", ["spark.pyspark.python", "spark.pyspark.driver.python"])
def test_another_python_that_spark_s_settings_name_finds_the_archive(name: str) -> None:
    with _home("local[2]", {name: "/opt/python/bin/python"}):
        assert "SPARK_HOME" not in os.environ
