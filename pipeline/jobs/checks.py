"""Check the brokers, topics and directories that a job needs, before its queries start and while they produce nothing.

Spark would report the same problems later and less clearly. The checks write nothing, except that they create the
directories to which the job writes anyway.
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
from ..options import NAME, SinkOptions, SourceOptions, Subscription
from ..sink.checkpoint import local_path
from ..sink.produce import CLIENT_DEFAULTS as SINK_DEFAULTS
from ..source.range_reader import CLIENT_DEFAULTS as SOURCE_DEFAULTS
from .failures import as_job_error
from .spec import AVAILABLE_NOW, Job, JobError, Sink, Source
from .waiting import pause_s

REACH_S: Final = 3.0
PROBE_S: Final = 1.0
SILENCE_S: Final = 10.0
"""The seconds without a finished micro-batch after which the brokers are checked."""

FILES: Final = ("csv", "json", "orc", "parquet", "text")


class KafkaAbsentError(JobError):
    """No broker can be reached."""


def prepare(job: Job, tell: Callable[[str], None]) -> None:
    """Check everything that can be checked without Spark, which starts slowly. Raises JobError.

    If no broker can be reached, check again up to `max_restarts` times. `tell` is called with messages about what the
    job waits for.
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
    """Raise JobError if the checkpoint or an output directory on this machine cannot be written."""
    _check_directory("checkpoint", job.checkpoint)
    for sink in job.sinks:
        if sink.format in FILES and "path" in sink.options:
            _check_directory(f"sink {sink.name!r}: path", sink.options["path"])


def _check_directory(what: str, location: str) -> None:
    """Create a directory on this machine if it is missing. Raise JobError if files cannot be created in it."""
    name = local_path(location)
    if name is None:
        return
    path = Path(name).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        raise JobError(
            f"{what} = {location} cannot be written to ({error.strerror}): name a directory that this user may write to"
        ) from None


def check_kafka(job: Job, tell: Callable[[str], None]) -> None:
    """Check that a job's brokers can be reached, and that the topics that the job reads exist.

    `tell` is called with a message about missing topics for which a stream can wait. Raises KafkaAbsentError if no
    broker can be reached, and JobError for invalid settings and for missing topics without which the job cannot run.
    """
    for source in job.sources:
        if source.format == NAME:
            with as_job_error(f"source {source.name!r}"):
                options = SourceOptions({**job.options, **source.options})
                subscription = Subscription.of(options)
                config: ClientConfig = options.client(ConsumerConfig, **SOURCE_DEFAULTS)
            _check_topics(job, source, subscription, config, tell)
    for sink in job.sinks:
        if sink.format == NAME:
            _reach(_sink_config(job, sink)).close()


def _check_topics(
    job: Job, source: Source, subscription: Subscription, config: ClientConfig, tell: Callable[[str], None]
) -> None:
    """Check that the topics of a source exist.

    Raise JobError if a topic is missing and the job cannot wait for it. If the job can wait, call `tell` with a
    message.
    """
    named = subscription.topics or {topic for topic, _ in subscription.partitions or ()}
    with _reach(config) as kafka:
        if not named:
            return
        topics = kafka.run(kafka.cluster.refresh(named)).topics
    missing = sorted(name for name in named if name not in topics or not topics[name].partitions)
    if not missing:
        return
    what = f"source {source.name!r}: there is no topic {' and no topic '.join(missing)} at {_servers(config)}"
    remedy = f"create it with `oncelog topic create {missing[0]} --bootstrap {config.bootstrap_servers[0]}`"
    ends = all((sink.trigger or job.trigger) == AVAILABLE_NOW for sink in job.sinks)
    if ends or not source.stream or subscription.partitions:
        raise JobError(f"{what}: correct `subscribe`, or {remedy}")
    tell(f"{what}: waiting for it ({remedy})")


def _reach(config: ClientConfig) -> BlockingCluster:
    """Connect to the brokers. Raises KafkaAbsentError if none can be reached, JobError for other errors."""
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
    """Return why none of the bootstrap servers accepts a connection, or an empty string if one of them does."""
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
    """A watch that reports once when a job's brokers become unreachable, and once when they can be reached again."""

    def __init__(self, job: Job, tell: Callable[[str], None]) -> None:
        self._configs = list(_configs(job))
        self._tell = tell
        self._away: set[str] = set()
        self._looked_at = time.monotonic()

    def heard(self) -> None:
        """Restart the watch, because a micro-batch has ended."""
        self._looked_at = time.monotonic()

    def look(self) -> None:
        """Check the brokers, unless a micro-batch has ended or a check was made in the last SILENCE_S seconds.

        While brokers cannot be reached, the limit is PROBE_S seconds.
        """
        if time.monotonic() - self._looked_at >= (PROBE_S if self._away else SILENCE_S):
            self.all_there()

    def all_there(self) -> bool:
        """Check the brokers now. Return whether each list of bootstrap servers in the job has a reachable broker."""
        for config in self._configs:
            servers = _servers(config)
            why = reachable(config)
            if why and servers not in self._away:
                self._away.add(servers)
                self._tell(f"Kafka at {servers} cannot be reached ({why}): the queries are waiting for it")
            elif not why and servers in self._away:
                self._away.discard(servers)
                self._tell(f"Kafka at {servers} is back: the queries continue")
        self._looked_at = time.monotonic()
        return not self._away


def _configs(job: Job) -> Iterator[ClientConfig]:
    """Yield the settings of one client for each distinct list of bootstrap servers in the job."""
    seen = set()
    for source in job.sources:
        if source.format == NAME:
            config: ClientConfig = SourceOptions({**job.options, **source.options}).client(
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
    with as_job_error(f"sink {sink.name!r}"):
        return SinkOptions({**job.options, **sink.options}).client(ProducerConfig, **SINK_DEFAULTS)


def _servers(config: ClientConfig) -> str:
    return ",".join(config.bootstrap_servers)
