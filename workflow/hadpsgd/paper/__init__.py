"""The page of the papers' claims, measured here: `hadpsgd paper` (docs/paper.md)."""
