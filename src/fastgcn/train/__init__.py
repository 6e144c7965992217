"""Training: presets, the loop, the run folder, stopping and callbacks."""
