"""`LatestRecords`: finds the last record of a key whose records are in several partitions.

That happens after partitions were added to a topic: its keys then belong to other partitions than before, and nothing
orders the records of two partitions except their timestamps.
"""

from __future__ import annotations

from ...client.producer.partitioner import partition_for_key


class LatestRecords:
    """The partition and the timestamp, in ms since the epoch, of the last known record of each key.

    All readers come to the same result, in whatever order they read the partitions: it is the last record of the
    partition that has the highest timestamp of the key.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int]] = {}

    def add(self, key: bytes, partition: int, timestamp_ms: int, partitions: int) -> bool:
        """Return whether a record is newer than the known records of its key. Each partition must be added in order.

        Of two partitions with the same timestamp, the one to which the key belongs among `partitions` is newer, because
        producers have written there since they know all partitions. Else the one with the higher number is newer.
        """
        known = self._known.get(key)
        if known is not None:
            known_partition, known_ms = known
            if partition == known_partition:
                timestamp_ms = max(timestamp_ms, known_ms)
            elif timestamp_ms < known_ms:
                return False
            elif timestamp_ms == known_ms:
                home = partition_for_key(key, partitions)
                if (known_partition == home, known_partition) > (partition == home, partition):
                    return False
        self._known[key] = partition, timestamp_ms
        return True
