"""Trained models in MLflow: what is logged, what it answers when it is served, which is best."""
