"""Jobs from files: `oncelog pipeline run job.toml`; and those that ship."""
