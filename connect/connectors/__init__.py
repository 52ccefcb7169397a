"""The built-in connectors, each in its own folder."""
