"""HeartbeatSource: a record per interval, counted from 0 in each task: for tests, and to see that a worker is alive."""
