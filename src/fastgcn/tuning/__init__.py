"""Tuning: settings are searched on validation nodes with Optuna."""
