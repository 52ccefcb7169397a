"""The connectors that are built in, each in a folder of its own."""
