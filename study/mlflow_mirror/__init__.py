"""The journal as MLflow runs and registered models."""
