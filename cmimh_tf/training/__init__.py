"""Training runs: data order, neighbourhoods, callbacks, health checks and the folder of a run."""
