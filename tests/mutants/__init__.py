"""Small faults put into the code one at a time: do the tests notice? See docs/mutants.md."""
