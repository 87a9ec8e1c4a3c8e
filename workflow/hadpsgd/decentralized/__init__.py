"""The engine: decentralised training, synchronous and asynchronous.

Its rooms, each importing only from those before it: topology (who mixes with whom, in which round),
core (a learner's weights and what happens to them), network (how they travel), record (what
happened, on disk, and done again), strategies (when to mix), elastic (going on when learners die),
simulated (the same code in virtual time), commands. `assembly` puts an engine together.
"""
