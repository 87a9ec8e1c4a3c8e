"""A bundle: one folder with all that recognises speech; written from a run, checked when opened."""
