"""What operators see of the broker: its log, the audit log, and metrics."""
