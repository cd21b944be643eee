"""Training runs: data order, checkpoints, health checks, and the folder that a run leaves behind."""
