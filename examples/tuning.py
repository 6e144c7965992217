"""Search settings on the validation nodes, keep the study on disk, and use the result.

python examples/tuning.py     needs pip install 'fastgcn[tune]'
"""

import fastgcn

graph = fastgcn.load("digits")
found = fastgcn.tune(
    graph,
    trials=5,
    time="1m",  # whichever comes first
    run_dir="study",  # the same call goes on after an interruption
    epochs=8,  # what is given is not searched
    metric="macro_f1",
)
for trial in found.trials:
    kind = "automatic choice" if trial.automatic else dict(trial.settings)
    print(f"trial {trial.number}: {trial.value:.4f} after {trial.epochs} epochs, {kind}")
print("what matters:", dict(list(found.importance.items())[:3]))
print("test macro-F1 of the best:", round(found.run.metrics["test_macro_f1"], 4))

# The best settings with another seed; on the command line: fastgcn train DATA --config best.toml
again = fastgcn.fit(graph, found.best.config.replace(seed=1))
print("with another seed:", round(again.metrics["test_macro_f1"], 4))
