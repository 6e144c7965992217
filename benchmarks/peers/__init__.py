"""Real peers, PyG and DGL, in the same run as ours: accuracy, and validation score over time."""
