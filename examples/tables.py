"""From two tables to a network: a data frame of nodes, a data frame of edges.

python examples/tables.py
"""

import numpy as np
import pandas as pd

import fastgcn

# Customers with a region, an age and a free text; payments between them. A fifth are unknown.
rng = np.random.default_rng(0)
n = 600
good = rng.random(n) < 0.7
customers = pd.DataFrame(
    {
        "customer": [f"c{i}" for i in range(n)],
        "region": rng.choice(["north", "south", "east"], n),
        "age": np.where(good, rng.normal(45, 12, n), rng.normal(36, 12, n)).round(),
        "note": np.where(good, "shop food", "crypto transfer"),
        "status": np.where(good, "honest", "fraud"),
    }
)
customers.loc[rng.random(n) < 0.3, "note"] = None
customers.loc[rng.random(n) < 0.2, "status"] = None
groups = [np.flatnonzero(good), np.flatnonzero(~good)]
payer = rng.integers(0, n, 3000)
same = rng.random(3000) < 0.8
payee = np.where(same, [rng.choice(groups[not g]) for g in good[payer]], rng.integers(0, n, 3000))
names = customers.customer.to_numpy()
payments = pd.DataFrame({"payer": names[payer], "payee": names[payee]})

graph = fastgcn.Graph.from_pandas(
    customers, payments, id="customer", label="status",
    source="payer", target="payee",
)  # fmt: skip
print(graph)
print("\n".join(graph.imported["notes"]))  # every choice that was made for you
run = fastgcn.fit(graph, epochs=30, run_dir="run")
print(run)
print(fastgcn.predict(run, graph, "unlabelled", as_frame=True).head())
