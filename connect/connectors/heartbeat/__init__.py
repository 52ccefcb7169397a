"""HeartbeatSource: produces numbered records at an interval, for tests and to check that a worker is alive."""
