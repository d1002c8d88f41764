"""The trained model that MLflow serves. Its inputs are texts; its outputs are predictions and exit layers.

MLflow copies this file into each registered model, and runs the copy to load the model ("models from code").
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from trainables import include
from trainables.data.examples import encode
from trainables.data.glue import Split
from trainables.data.metrics import predictions_from_logits
from trainables.runs.evaluation import infer
from trainables.runs.random_numbers import seeded_generator
from trainables.runs.trained_model import load_trained

BATCH_SIZE = 32


class EarlyExitClassifier(PythonModel):
    """A trained early-exit model with the interface of an MLflow model."""

    def load_context(self, context: Any) -> None:
        """Load the model. If the method is a user's own, first load the method's files."""
        if "methods" in context.artifacts:
            include(context.artifacts["methods"])
        self._trained = load_trained(Path(context.artifacts["model"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return a row per input, with `prediction` (class name or score) and `exit_layer` (number of layers)."""
        trained, task = self._trained, self._trained.task
        texts = list(zip(*(model_input[column].tolist() for column in task.text_columns), strict=True))
        rows = Split(list(range(len(texts))), texts, labels=None)
        examples = encode(rows, trained.tokenizer, max_length=trained.config.max_length)
        # The texts seed the draws of a sampled exit, so equal requests have equal answers, but other texts other draws.
        generator = seeded_generator(trained.spec.seed, f"served {texts}", 0)
        result = infer(trained.model, examples, BATCH_SIZE, generator)
        predictions = predictions_from_logits(task, result.logits.numpy())
        answers = predictions.astype(float) if task.is_regression else [task.labels[index] for index in predictions]
        return pd.DataFrame({"prediction": answers, "exit_layer": result.exit_layer.numpy()})


set_model(EarlyExitClassifier())
