"""The mirror of a study in MLflow: its journal as runs, its trained models as registered models."""
