"""Search settings on the validation nodes, keep the study on disk, and use the result.

python examples/tuning.py     needs pip install 'fastgcn[tune]'
"""

import fastgcn

graph = fastgcn.load("digits")
found = fastgcn.tune(
    graph,
    trials=3,
    time="1m",  # whichever comes first
    run_dir="study",  # the same call goes on after an interruption
    epochs=6,  # what is given is not searched
    metric="macro_f1",
)
for trial in found.trials:
    kind = "automatic choice" if trial.automatic else dict(trial.settings)
    print(f"trial {trial.number}: {trial.value:.4f} after {trial.epochs} epochs, {kind}")
print("what matters, once there are five finished trials:", dict(found.importance))
print("test macro-F1 of the best:", round(found.run.metrics["test_macro_f1"], 4))

print("next: fastgcn train digits --config study/best.toml --seed 1")
