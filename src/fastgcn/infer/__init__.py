"""Using a trained network: predict, embed, evaluate, new nodes."""
