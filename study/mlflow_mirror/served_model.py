"""The trained model that MLflow serves: its inputs are texts, its outputs predictions and exit layers.

MLflow copies this file into each registered model and runs it to load the model ("models from code"). Nothing is
pickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from trainables import include
from trainables.data.metrics import predictions_from_logits
from trainables.runs.random_numbers import seeded_generator
from trainables.runs.trained_model import load_trained

BATCH_SIZE = 32


class EarlyExitClassifier(PythonModel):
    """A trained early-exit model with the interface of an MLflow model."""

    def load_context(self, context: Any) -> None:
        """Load the model; if its method is a user's own, first load the method's files."""
        if "methods" in context.artifacts:
            include(context.artifacts["methods"])
        self._trained = load_trained(Path(context.artifacts["model"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return a row per input, with `prediction` (class name or score) and `exit_layer` (layers run, from 1)."""
        generator = seeded_generator(self._trained.spec.seed, "served", 0)
        batches = [model_input[start : start + BATCH_SIZE] for start in range(0, len(model_input), BATCH_SIZE)]
        return pd.concat([self._answer(batch, generator) for batch in batches], ignore_index=True)

    def _answer(self, rows: pd.DataFrame, generator: torch.Generator) -> pd.DataFrame:
        trained = self._trained
        task = trained.task
        encoded = trained.tokenizer(
            *(rows[column].tolist() for column in task.text_columns),
            truncation="longest_first",
            max_length=trained.config.max_length,
            padding=True,
            return_token_type_ids=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            result = trained.model.infer(dict(encoded), generator)
        predictions: np.ndarray = predictions_from_logits(task, result.logits.float().numpy())
        answers = predictions.astype(float) if task.is_regression else [task.labels[index] for index in predictions]
        return pd.DataFrame({"prediction": answers, "exit_layer": result.exit_layer.numpy()})


set_model(EarlyExitClassifier())
