"""A registered model as MLflow loads it: features in, scaled log-likelihoods out.

model = mlflow.pyfunc.load_model("models:/demo-hadpsgd-2x2/1")  # of a run without a bundle
log_likelihoods = model.predict(features)  # float32 [utterances, frames, dim] → [..., pdfs]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from hadpsgd.models.build import load_model


class ServedModel:
    """Log-posteriors minus log-priors, as the decoder takes them."""

    def __init__(self, path: Path) -> None:
        """Load `final.pt`."""
        self._model, self.meta = load_model(path)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Score normalised, fused features.

        Args:
            features: float32 [utterances, frames, input_dim].

        Returns:
            float32 [utterances, frames, num_pdfs].
        """
        with torch.inference_mode():
            logits = self._model(torch.as_tensor(features, dtype=torch.float32))
            scores = torch.log_softmax(logits, dim=-1) - self.meta.log_priors
        return scores.numpy()


def _load_pyfunc(path: str) -> ServedModel:
    """MLflow's entry point; `path` is the file given to `save_model`, or its folder."""
    found = Path(path)
    return ServedModel(found / "final.pt" if found.is_dir() else found)
