"""Every training and scoring as an MLflow run.

Called at the edges only. Training writes `metrics.jsonl`; a process of its own, started by
`follower.start`, reads it and talks to MLflow, so that a slow or dead store costs training
nothing. What the store does not take waits in the spool for `hadpsgd track --upload`.
"""
