"""Create the topics of end-to-end tests through the admin client."""

from __future__ import annotations

from oncelog import Admin


async def created_topic(bootstrap: str, name: str, partitions: int) -> str:
    """Create a topic with the broker's default configs, and return its name. Raises KafkaError."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic(name, partitions)
    return name
