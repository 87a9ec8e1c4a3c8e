"""What a user reads at the end: the table, the curves, the cost of each stage, one HTML page."""
