"""How far a workflow is: what it records of its jobs, and one screen of it."""
