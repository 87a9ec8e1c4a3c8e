"""Runs in a results folder that no config names any more."""
