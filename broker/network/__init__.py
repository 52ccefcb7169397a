"""Network layer: listeners, connections, their limits and their buffers. It handles frames and knows no API."""
