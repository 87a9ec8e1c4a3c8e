"""Recordings to words with times, by a bundle."""
