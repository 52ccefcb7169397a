"""Looks at what a job needs before its queries start, and while nothing comes out of them: Kafka, topics, directories.

Spark would find the same, later and in its own words. Writes nothing but the directories that the job writes to anyway.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ...client.config import ClientConfig, ConsumerConfig, ProducerConfig
from ...protocol.errors import KafkaError
from ..blocking import BlockingCluster
from ..options import NAME, SINK_OPTIONS, SOURCE_OPTIONS, Options, Subscription
from ..sink.produce import CLIENT_DEFAULTS as SINK_DEFAULTS
from ..source.range_reader import CLIENT_DEFAULTS as SOURCE_DEFAULTS
from .failures import told_of
from .spec import AVAILABLE_NOW, Job, JobError, Sink, Source
from .waiting import pause_s

REACH_S: Final = 3.0
PROBE_S: Final = 1.0
SILENCE_S: Final = 10.0
"""When no micro-batch has ended for so long, the brokers are looked for."""

FILES: Final = ("csv", "json", "orc", "parquet", "text")


class KafkaAbsentError(JobError):
    """No broker can be reached."""


def prepare(job: Job, tell: Callable[[str], None]) -> None:
    """Look at all that needs no Spark, before its slow start. Waits for brokers as often as a query may fail.

    `tell` is told what the job waits for. Raises JobError.
    """
    check_directories(job)
    for attempt in range(job.max_restarts + 1):
        try:
            return check_kafka(job, tell)
        except KafkaAbsentError as failure:
            if attempt == job.max_restarts:
                raise
            tell(f"{failure}. Trying again")
            time.sleep(pause_s(1.0, attempt))


def check_directories(job: Job) -> None:
    """Raise JobError for a checkpoint or an output directory, on this machine, that cannot be written."""
    _check_directory("checkpoint", job.checkpoint)
    for sink in job.sinks:
        if sink.format in FILES and "path" in sink.options:
            _check_directory(f"sink {sink.name!r}: path", sink.options["path"])


def _check_directory(what: str, location: str) -> None:
    name = location.removeprefix("file://") if location.startswith("file:///") else location.removeprefix("file:")
    if "://" in name:
        return
    path = Path(name).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        raise JobError(
            f"{what} = {location}: cannot be written ({error.strerror}): name a directory that this user may write to"
        ) from None


def check_kafka(job: Job, tell: Callable[[str], None]) -> None:
    """Ask the brokers of a job for the topics that it reads. `tell` is told of topics that a stream waits for.

    Raises KafkaAbsentError, and JobError for settings that cannot be and for topics without which nothing would happen.
    """
    for source in job.sources:
        if source.format == NAME:
            with told_of(f"source {source.name!r}"):
                options = Options({**job.options, **source.options}, SOURCE_OPTIONS)
                subscription = Subscription.of(options)
                config: ClientConfig = options.client(ConsumerConfig, **SOURCE_DEFAULTS)
            _check_topics(job, source, subscription, config, tell)
    for sink in job.sinks:
        if sink.format == NAME:
            _reach(_sink_config(job, sink)).close()


def _check_topics(
    job: Job, source: Source, subscription: Subscription, config: ClientConfig, tell: Callable[[str], None]
) -> None:
    named = subscription.topics or {topic for topic, _ in subscription.partitions or ()}
    with _reach(config) as kafka:
        if not named:
            return
        topics = kafka.run(kafka.cluster.refresh(named)).topics
    missing = sorted(name for name in named if name not in topics or not topics[name].partitions)
    if not missing:
        return
    what = f"source {source.name!r}: there is no topic {' and no topic '.join(missing)} at {_servers(config)}"
    remedy = f"`oncelog topic create {missing[0]} --bootstrap {config.bootstrap_servers[0]}` makes it"
    ends = all((sink.trigger or job.trigger) == AVAILABLE_NOW for sink in job.sinks)
    if ends or not source.stream or subscription.partitions:
        raise JobError(f"{what}: correct `subscribe`, or {remedy}")
    tell(f"{what}: waiting for it ({remedy})")


def _reach(config: ClientConfig) -> BlockingCluster:
    try:
        return BlockingCluster(config, REACH_S)
    except KafkaError as error:
        if not error.retriable:
            raise JobError(f"Kafka at {_servers(config)}: {error}") from None
        why = reachable(config) or str(error)
        raise KafkaAbsentError(
            f"Kafka at {_servers(config)} cannot be reached ({why}): start it (oncelog serve), or correct "
            "kafka.bootstrap.servers"
        ) from None


def reachable(config: ClientConfig) -> str:
    """Why none of the bootstrap servers accepts a connection; nothing when one does."""
    why = ""
    for server in config.bootstrap_servers:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_S).close()
        except OSError as error:
            why = error.strerror or str(error)
        else:
            return ""
    return why


class SilenceWatch:
    """Tells once when nothing comes out of a job because its brokers are away, and once when they are back."""

    def __init__(self, job: Job, tell: Callable[[str], None]) -> None:
        self._configs = list(_configs(job))
        self._tell = tell
        self._away: set[str] = set()
        self._looked_at = time.monotonic()

    def heard(self) -> None:
        """A micro-batch has ended."""
        self._looked_at = time.monotonic()

    def look(self) -> None:
        """Look for the brokers, if it is time to."""
        if time.monotonic() - self._looked_at >= (PROBE_S if self._away else SILENCE_S):
            self.all_there()

    def all_there(self) -> bool:
        """Look now; whether each address that the job knows answers."""
        for config in self._configs:
            servers = _servers(config)
            why = reachable(config)
            if why and servers not in self._away:
                self._away.add(servers)
                self._tell(f"Kafka at {servers} cannot be reached ({why}): the queries wait for it")
            elif not why and servers in self._away:
                self._away.discard(servers)
                self._tell(f"Kafka at {servers} is back: going on")
        self._looked_at = time.monotonic()
        return not self._away


def _configs(job: Job) -> Iterator[ClientConfig]:
    """One per address."""
    seen = set()
    for source in job.sources:
        if source.format == NAME:
            config: ClientConfig = Options({**job.options, **source.options}, SOURCE_OPTIONS).client(
                ConsumerConfig, **SOURCE_DEFAULTS
            )
            if config.bootstrap_servers not in seen:
                seen.add(config.bootstrap_servers)
                yield config
    for sink in job.sinks:
        if sink.format == NAME and (config := _sink_config(job, sink)).bootstrap_servers not in seen:
            seen.add(config.bootstrap_servers)
            yield config


def _sink_config(job: Job, sink: Sink) -> ClientConfig:
    with told_of(f"sink {sink.name!r}"):
        return Options({**job.options, **sink.options}, SINK_OPTIONS).client(ProducerConfig, **SINK_DEFAULTS)


def _servers(config: ClientConfig) -> str:
    return ",".join(config.bootstrap_servers)
