"""The same call on a GPU: sampling, training and evaluation run there if there is one.

python examples/gpu.py
"""

import torch

import fastgcn

graph = fastgcn.load("digits")
if torch.cuda.is_available():
    device = "cuda"
    print("on", torch.cuda.get_device_name())
else:
    device = "cpu"
    print("There is no GPU that torch sees, so this runs on the CPU.")
run = fastgcn.fit(graph, device=device, epochs=20)  # device="auto", the default, does the same
print(run)
seconds = run.metrics["train_seconds"]
print(f"{run.metrics['device']}: {len(run.history)} epochs in {seconds:.2f} s")

# The network can be moved, and predicts where it is.
model = run.model.to(device)
print(fastgcn.predict(model, graph, [1, 2, 3]).argmax(axis=1), graph.labels[[1, 2, 3]])
