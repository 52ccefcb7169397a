"""Read and check the options of a sink once: in the driver, before anything is written."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping

from pyspark.sql.types import StructType

from ...client.config import ProducerConfig
from ...client.errors import ConfigError
from ..blocking import BlockingCluster
from ..options import BATCH, DONE, PLAN, QUERY, RUN, WRITE, SinkOptions
from .checkpoint import normalised
from .produce import CLIENT_DEFAULTS
from .rows import check_columns


class SinkSettings:
    """The options of a sink, read and checked. They are pickled and sent to the tasks."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, streaming: bool) -> None:
        options = SinkOptions(given)
        self.config = options.client(ProducerConfig, **CLIENT_DEFAULTS)
        self.topic = options.topic
        self.headers = options.include_headers
        self.state_topic = options.state_topic
        self.adopt = options.adopt_query
        self.write_id = options.write_id
        self.write = self.write_id or options.of_query(WRITE) or str(uuid.uuid4())
        """The name of a batch write, which is the owner of its state. Random without a writeId."""
        self.query, self.batch_id = options.of_query(QUERY), options.number_of_query(BATCH)
        """The query and the number of a stream's micro-batch that Spark writes as a batch."""
        self.plan = options.of_query(PLAN)
        """Digest of this micro-batch's plan, as the driver has read it."""
        self.run, self.done = options.of_query(RUN), options.number_of_query(DONE)
        """The start of the query or of a job's batch write, and the newest batch that was done at that time. Empty
        without `write_stream` or a job."""
        streaming = streaming or bool(self.query)
        self.streaming = streaming
        self.checkpoint = options.of_spark("checkpointLocation") if streaming else ""
        if streaming and self.write_id:
            raise ConfigError(
                "writeId", "applies to batch writes only: a stream's batches are identified by their numbers"
            )
        named = options.transactional_id
        if named and self.write_id:
            raise ConfigError(
                "transactionalId",
                f"and writeId cannot be combined, because writes with the same transactional id overwrite each other's "
                f"state. Leave transactionalId out: this write then has the transactional id {_of_write(self.write)!r}",
            )
        self.transactional_id = named or (_of_checkpoint(self.checkpoint) if streaming else _of_write(self.write))
        check_columns(schema, self.topic, self.headers)

    @property
    def timeout_s(self) -> float:
        """The limit in seconds of one request to the cluster, retries included."""
        return self.config.max_block_ms / 1000

    def open(self) -> BlockingCluster:
        """Connect to the cluster."""
        return BlockingCluster(self.config, self.timeout_s, create_topics=True)


def _of_checkpoint(location: str) -> str:
    """Return the transactional id of a query: a digest of its checkpointLocation. Raises ConfigError without one."""
    if not location:
        raise ConfigError(
            "checkpointLocation",
            "is required as an option of this query, .option('checkpointLocation', ...), because its transactional id "
            "is derived from it. Or set transactionalId to an id that stays the same across restarts",
        )
    return f"oncelog-query-{hashlib.sha256(normalised(location).encode()).hexdigest()[:32]}"


def _of_write(write: str) -> str:
    """Return the transactional id of a batch write, which is derived from its name."""
    return f"oncelog-write-{write}"
