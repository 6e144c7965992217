"""Kernels for CUDA devices, in Triton, and the plain torch references that tests compare with."""
