"""oncelog: a Kafka-compatible broker in one Python process, specialised in exactly-once, and its asyncio client."""
