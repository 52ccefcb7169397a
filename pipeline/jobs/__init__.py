"""Run jobs from files (`oncelog pipeline run job.toml`), and provide the jobs that ship with oncelog."""
