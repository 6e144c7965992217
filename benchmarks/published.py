"""The numbers that the paper prints; seconds, and micro-F1."""

# Systems of the comparison, under the names that `fastgcn.train.presets.METHODS` has for them.
SYSTEMS = {
    "fastgcn": "FastGCN",
    "graphsage-gcn": "GraphSAGE-GCN",
    "graphsage-mean": "GraphSAGE-mean",
    "gcn-batched": "GCN (batched)",
    "gcn": "GCN (original)",
}

# Table 1.
STATISTICS = {
    "Cora": {
        "nodes": 2708, "edges": 5429, "classes": 7, "features": 1433,
        "train": 1208, "val": 500, "test": 1000,
    },
    "Pubmed": {
        "nodes": 19717, "edges": 44338, "classes": 3, "features": 500,
        "train": 18217, "val": 500, "test": 1000,
    },
    "Reddit": {
        "nodes": 232965, "edges": 11606919, "classes": 41, "features": 602,
        "train": 152410, "val": 23699, "test": 55334,
    },
}  # fmt: skip

# Table 2, Pubmed: seconds an epoch and F1 by sample size, both layers sampled or one.
TABLE_2 = {
    "sampling": {5: (0.737, 0.859), 10: (0.755, 0.863), 25: (0.760, 0.873), 50: (0.774, 0.864)},
    "precompute": {5: (0.139, 0.849), 10: (0.141, 0.870), 25: (0.144, 0.879), 50: (0.142, 0.880)},
}

# The table in Figure 3.
F1 = {
    "fastgcn": {"Cora": 0.850, "Pubmed": 0.880, "Reddit": 0.937},
    "graphsage-gcn": {"Cora": 0.829, "Pubmed": 0.849, "Reddit": 0.923},
    "graphsage-mean": {"Cora": 0.822, "Pubmed": 0.888, "Reddit": 0.946},
    "gcn-batched": {"Cora": 0.851, "Pubmed": 0.867, "Reddit": 0.930},
    "gcn": {"Cora": 0.865, "Pubmed": 0.875},
}

# Table 3: seconds a batch; the old program's figures are also the bars of Figure 3.
BATCH_SECONDS = {
    "fastgcn": {"Cora": 0.0084, "Pubmed": 0.0047, "Reddit": 0.0129},
    "graphsage-gcn": {"Cora": 1.1630, "Pubmed": 0.3579, "Reddit": 0.4260},
    "gcn-batched": {"Cora": 0.0166, "Pubmed": 0.0815, "Reddit": 2.1731},
}
NEW_GRAPHSAGE_SECONDS = {"Cora": 0.0380, "Pubmed": 0.3989}

# Appendix C: seconds of training in all.
TOTAL_SECONDS = {
    "fastgcn": {"Cora": 2.7, "Pubmed": 15.5, "Reddit": 638.6},
    "graphsage-gcn": {"Cora": 72.4, "Pubmed": 259.6, "Reddit": 3318.5},
    "gcn-batched": {"Cora": 6.9, "Pubmed": 210.8, "Reddit": 58346.6},
    "gcn": {"Cora": 1.7, "Pubmed": 21.4},
}

# Appendix C, the original split: seconds in all, and F1.
ORIGINAL_SPLIT = {
    "fastgcn": {"Cora": (2.52, 0.723), "Pubmed": (0.97, 0.721)},
    "fastgcn-transductive": {"Cora": (5.88, 0.818), "Pubmed": (8.97, 0.776)},
    "graphsage-gcn": {"Cora": (107.95, 0.334), "Pubmed": (39.34, 0.386)},
    "gcn": {"Cora": (2.18, 0.814), "Pubmed": (32.65, 0.795)},
}
