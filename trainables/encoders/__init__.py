"""Backbones by name, and encoders that run one layer at a time."""
