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
