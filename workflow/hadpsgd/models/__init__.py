"""Acoustic models: frames in, logits over pdf-ids out."""
