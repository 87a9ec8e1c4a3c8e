"""Noise and rooms for copies of training speech."""
