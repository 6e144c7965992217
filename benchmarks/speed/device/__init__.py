"""Figures of speed on a CUDA device, where absolute times hold."""
