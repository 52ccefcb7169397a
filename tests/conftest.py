"""Fixtures shared by all tests. `bootstrap` is oncelog by default and Apache Kafka with `--kafka`."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import signal
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import settings

if TYPE_CHECKING:
    from support.tls import Authority

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("oncelog", deadline=None)
settings.load_profile("oncelog")

_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kafka", action="store_true", help="run the end-to-end tests against Apache Kafka 4.1 instead")
    parser.addoption("--kafka-version", help="with --kafka: another version of it, 2.5.1 or 3.9.1 for instance")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests by files (`make test`), but let one worker run all tests of the pipeline.

    So only one worker starts Spark, which takes a core for half a minute, and its session is warm after the first test.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "pipeline" if file.startswith("pipeline/") else file

    return Scheduling(config, log)


def pytest_configure() -> None:
    # A shell starts what it puts into the background with SIGINT ignored, and so would every process started here be.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The same holds for SIGHUP under nohup. The tests still ignore it, but processes do not inherit a handler.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # CPython 3.11 raises SystemError ("AST constructor recursion depth mismatch", gh-106905) when a garbage collection
    # in the middle of building a syntax tree builds another one; pytest builds one for every test module it loads.
    gc.disable()
    with _turn_to_collect():
        return (yield)


@contextmanager
def _turn_to_collect() -> Iterator[None]:
    """Let two workers of xdist collect at a time: they compile the tests, and the next two find the bytecode."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker:
        yield
        return
    locked = (Path(__file__), Path(__file__).parents[1] / "pyproject.toml")[int(worker.removeprefix("gw")) % 2]
    with locked.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed
        yield


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # or every full collection goes through thousands of tests and all their modules
    gc.set_threshold(20_000, 20, 20)  # most new objects live until their test ends, so frequent collections are in vain
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The tests of the pipeline take longest, and all run in one worker. So they begin first.
    items.sort(key=lambda item: not item.nodeid.startswith("pipeline/"))
    if not config.getoption("--kafka"):
        return
    for item in items:
        mark = item.get_closest_marker("oncelog_only")
        if mark is not None:
            if not mark.kwargs.get("reason"):
                raise pytest.UsageError(f"{item.nodeid}: oncelog_only needs a reason")
            item.add_marker(pytest.mark.skip(reason=f"oncelog only: {mark.kwargs['reason']}"))


@pytest.fixture
def collected_sockets() -> Iterator[None]:
    """Collect the sockets that a stock client has left open, before they fail a later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A broker in this process configures structlog, and its log lines would not be captured in later tests."""
    yield
    structlog.reset_defaults()


RETENTION_CHECK = "log.retention.check.interval.ms"
A_DAY_MS = "86400000"
"""Many tests write records with timestamps of 1970, which retention would delete in the middle of a test."""


@pytest.fixture(scope="session")
def is_kafka(request: pytest.FixtureRequest) -> bool:
    """Whether `bootstrap` is Apache Kafka."""
    return bool(request.config.getoption("--kafka"))


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running broker, shared by the session: use fresh topic, group and transactional ids."""
    directory = tmp_path_factory.mktemp("broker")
    if request.config.getoption("--kafka"):
        from support.apache_kafka import VERSION, ApacheKafka

        version = request.config.getoption("--kafka-version") or VERSION
        seldom = {RETENTION_CHECK: A_DAY_MS, "log.initial.task.delay.ms": A_DAY_MS}
        with ApacheKafka(directory, seldom, version=version) as kafka:
            yield kafka.address
        return
    from support.broker import BrokerProcess

    # Hundreds of groups start one member each, so none waits for more; Apache Kafka is set so here, too.
    settings = ("group.initial.rebalance.delay.ms=0", f"{RETENTION_CHECK}={A_DAY_MS}")
    with BrokerProcess(directory, *(word for setting in settings for word in ("--set", setting))) as broker:
        yield broker.address


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A certificate authority, with its files in the test's directory."""
    from support.tls import Authority

    return Authority(tmp_path)


@pytest.fixture
def fresh_name() -> Callable[[str], str]:
    """`fresh_name("topic")` gives a name that no other test uses, neither in this run nor beside it."""
    return lambda stem: f"{stem}-{os.getpid()}-{next(_numbers)}"
