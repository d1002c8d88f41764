"""The copy of a study in MLflow: runs with the content of the journal, and the trained models."""
