"""examples/secure_job.toml as users run it, after the commands of docs/pipeline.md that add its access rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from oncelog.pipeline.requirements import RequirementError, java_problem, require_spark
from support.documented_rules import documented_commands
from support.example_programs import EXAMPLES, fill
from support.reading import make_topic, read_topic
from support.secure_broker import PASSWORD, SecureBroker

try:
    require_spark()
    problem = java_problem()
except RequirementError as error:
    problem = str(error)

pytestmark = [
    pytest.mark.skipif(problem is not None, reason=str(problem)),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

USER = "flights-job"


def oncelog(directory: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "oncelog.cli", *arguments],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_job_copies_late_flights(tmp_path: Path) -> None:
    flights = [{"carrier": "UA", "flight": number, "tailnum": "N1", "arr_delay": number} for number in (5, 60, 99)]
    with SecureBroker(tmp_path / "secure", USER) as broker:
        for topic in ("flights", "late-flights", "__oncelog_pipeline"):
            make_topic(broker.address, topic)
        fill(broker.address, "flights", flights)
        for words in documented_commands("pipeline.md", f"User:{USER}"):
            oncelog(tmp_path, *words, "--bootstrap", broker.address)
        environment = {
            "ONCELOG_BOOTSTRAP": broker.sasl_address,
            "CA": str(broker.authority.trusted),
            "KAFKA_PASSWORD": PASSWORD,
        }
        checkpoint = f"CHECKPOINT={tmp_path / 'checkpoint'}"
        job = ("pipeline", "run", str(EXAMPLES / "secure_job.toml"), "--var", checkpoint)
        planned = oncelog(tmp_path, *job, "--dry-run", **environment)
        assert PASSWORD not in planned + oncelog(tmp_path, *job, **environment)
        records = read_topic(broker.address, "late-flights").values()
        values = [json.loads(message.value() or b"") for messages in records for message in messages]
        assert sorted(value["flight"] for value in values) == [60, 99]
