"""Where work is done: on the CPU, on a GPU, or in several processes."""
