"""The demo: an exactly-once job on real data, whose processes are killed while it runs."""
