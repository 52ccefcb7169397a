"""`LatestRecords`: finds the last record of a key whose records are in several partitions.

A key may have records in several partitions after partitions were added to a topic, because it may then belong to a
different partition. Only timestamps order the records of two partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...client.producer.partitioner import partition_for_key


class LatestRecords:
    """The partition and the timestamp, in ms since the epoch, of the last known record of each key.

    If several partitions have records of a key, the partition with the highest timestamp of the key counts. The last
    record of the key in this partition is the last record of the key. Therefore, all readers get the same result, in
    whatever order they read the partitions.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int]] = {}
        self._older: dict[bytes, dict[int, int]] = {}
        """For the few keys with records in other partitions: the newest timestamp in each such partition, in ms."""

    def add(self, key: bytes, partition: int, timestamp_ms: int, partitions: int) -> bool:
        """Add a record, and return whether it is newer than its key's known records.

        The records of a partition must be added in order. `partitions` is the topic's number of partitions, which
        determines to which partition the key belongs. Of two records with the same timestamp in different partitions,
        the record in the key's partition is newer, because producers that know all partitions write there. If neither
        record is in the key's partition, the record in the partition with the higher number is newer.
        """
        known = self._known.get(key)
        if known is not None:
            known_partition, known_ms = known
            if partition == known_partition:
                timestamp_ms = max(timestamp_ms, known_ms)
            else:
                home = partition_for_key(key, partitions)
                older = self._older.setdefault(key, {})
                if (known_ms, known_partition == home, known_partition) > (timestamp_ms, partition == home, partition):
                    older[partition] = max(timestamp_ms, older.get(partition, timestamp_ms))
                    return False
                older.pop(partition, None)
                older[known_partition] = known_ms
        self._known[key] = partition, timestamp_ms
        return True

    def places(self, key: bytes) -> Mapping[int, int]:
        """Return the partitions that have had records of a key, each with its newest timestamp for the key, in ms."""
        known = self._known.get(key)
        return {} if known is None else {**self._older.get(key, {}), known[0]: known[1]}
