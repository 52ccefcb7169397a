"""Sockets: listeners, connections, their limits and their buffers. Knows frames, and no API."""
