"""The demo's job with its processes killed: nothing lost, nothing doubled, nothing altered, everything in order."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from oncelog.demo.job import JobOptions, Outcome, run_job
from oncelog.demo.kills import PIPELINE_TARGETS, Kill, parse, random_schedule
from oncelog.demo.pipeline_half import pipeline_problem
from support.demo_notes import Notes

SHORT_SESSIONS = ("group.min.session.timeout.ms=1000", "group.initial.rebalance.delay.ms=200")


async def outcome_of(tmp_path: Path, rows: int, kills: tuple[Kill, ...], durability: str, limit_s: float) -> Outcome:
    notes = Notes()
    outcome = await run_job(
        JobOptions(
            directory=tmp_path,
            rows=rows,
            kills=kills,
            durability=durability,
            session_timeout_ms=2000,
            max_poll_records=500,
            time_limit_s=limit_s,
            broker_settings=SHORT_SESSIONS,
        ),
        notes,
    )
    print("\n".join(notes.events))
    print(f"{outcome.aborted} records of aborted transactions, {outcome.seconds:.1f} s")
    return outcome


def assert_exactly_once(outcome: Outcome, kills: int) -> None:
    assert len(outcome.kills) == kills
    for check in (outcome.flights, outcome.enriched):
        assert check.exact, (
            f"{check.topic}: {check.lost} lost, {check.doubled} doubled, {check.altered} altered,"
            f" {check.out_of_order} out of order; first: {check.first_fault}"
        )
    assert outcome.carriers.exact, outcome.carriers.differing


@pytest.mark.oncelog_only(reason="kills the broker's process")
async def test_job_is_exactly_once_while_broker_and_transformers_are_killed(tmp_path: Path) -> None:
    kills = parse("transformer@0.15,broker@0.4,transformer@0.7")
    outcome = await outcome_of(tmp_path, rows=12_000, kills=kills, durability="flush", limit_s=100)
    assert_exactly_once(outcome, kills=3)


@pytest.mark.oncelog_only(reason="kills the broker's process")
def test_sigterm_ends_the_demo_with_all_its_processes_and_says_where_it_stood(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "oncelog.demo", "--no-pipeline", "--kills=none", f"--dir={tmp_path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        children: list[psutil.Process] = []
        try:
            while "broker ready" not in (line := demo.stdout.readline()):
                assert line, "the demo ended too early"
            children = psutil.Process(demo.pid).children(recursive=True)
            demo.send_signal(signal.SIGTERM)
            rest = demo.stdout.read()
            assert demo.wait(60) == 143
            assert "interrupted: was waiting" in rest
            assert f"logs are in {tmp_path}" in rest.replace("\n", "")
            assert len(children) > 0
            assert [child for child in children if child.is_running()] == []
        finally:
            demo.kill()
            for child in children:
                if child.is_running():
                    child.kill()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.oncelog_only(reason="kills the broker's process")
@pytest.mark.skipif(pipeline_problem() is not None, reason=str(pipeline_problem()))
async def test_flights_job_on_spark_is_exactly_once_while_driver_and_broker_are_killed(tmp_path: Path) -> None:
    notes = Notes()
    outcome = await run_job(
        JobOptions(
            directory=tmp_path,
            rows=4000,
            kills=(),
            pipeline=True,
            pipeline_kills=parse("driver@0.15,broker@0.6", PIPELINE_TARGETS),
            time_limit_s=380,
            broker_settings=SHORT_SESSIONS,
        ),
        notes,
    )
    delays = outcome.delays
    assert delays is not None
    print("\n".join(notes.events))
    print(f"{delays.aborted} records of aborted transactions, {delays.left_files} files left, {delays.seconds:.1f} s")
    assert len(delays.kills) == 2
    for check in delays.checks:
        assert check.exact, f"{check.topic}: {check.lost} lost, {check.doubled} doubled; first: {check.first_fault}"
    assert (delays.cleaned.records, delays.parquet.records, delays.hours.counted) == (4000, 4000, 4000)
    assert delays.latest.records > 0
    assert delays.late == 0


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.oncelog_only(reason="kills the broker's process")
@pytest.mark.parametrize("run", range(20))
async def test_job_is_exactly_once_under_kills_at_random_moments(tmp_path: Path, run: int) -> None:
    """A kill of processes alone can't lose what the system has: durability `os` must hold as well as `flush`."""
    seed = random.SystemRandom().randrange(1 << 32)
    schedule = random_schedule(seed, brokers=1 + run % 3, transformers=2)
    print(f"seed {seed}: {', '.join(map(str, schedule))}")
    durability = "os" if run % 2 else "flush"
    outcome = await outcome_of(tmp_path, rows=30_000, kills=schedule, durability=durability, limit_s=300)
    assert_exactly_once(outcome, kills=len(schedule))
