"""Variables that say to a process of a run what it is; torchrun's where it has such."""

RESTARTS = "TORCHELASTIC_RESTART_COUNT"
AGENTS = "TORCHELASTIC_USE_AGENT_STORE"
JOIN = "HADPSGD_JOIN"
"""Set for a process that takes the place of one that died: how many had its rank before."""
RETURN = "HADPSGD_RETURN"
"""Set, beside JOIN, for one whose super-learner is still there: its first member goes on alone."""
