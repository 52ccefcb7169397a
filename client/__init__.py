"""The asyncio clients: producer, consumer, admin client, producer pool and processor."""
