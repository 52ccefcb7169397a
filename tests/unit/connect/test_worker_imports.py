"""A worker imports what every worker needs, and no library of a connector: imports are most of its memory and start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("h11", reason="needs the extra: pip install 'oncelog[connect]'")

LIBRARIES = {"aiohttp", "numpy", "pandas", "prometheus_client", "psycopg", "pyarrow", "rich", "sqlalchemy", "structlog"}


def test_a_worker_does_not_import_libraries_of_connectors_or_of_the_broker() -> None:
    program = "import json, sys, oncelog.cli.main, oncelog.cli.connect, oncelog.connect.process"
    program += "; print(json.dumps(list(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    modules = json.loads(printed)
    assert not {module.partition(".")[0] for module in modules} & LIBRARIES
    assert not [module for module in modules if module.startswith(("oncelog.broker", "oncelog.pipeline"))]


def test_a_connector_without_its_library_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['aiohttp', 'yarl', 'psycopg', 'sqlalchemy']))\n"
        "from oncelog.connect.plugins import load_class\n"
        "for name in ('HttpSource', 'SqlSource', 'PostgresSource'):\n"
        "    print(*[error for value in load_class(name)().validate({}) for error in value.errors])\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    extras = [f"oncelog[connect-{extra}]" for extra in ("http", "sql", "postgres")]
    assert [extra in line for extra, line in zip(extras, printed.splitlines(), strict=True)] == [True] * 3
