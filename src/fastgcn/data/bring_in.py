"""`fastgcn import`: whatever the source is, a store comes out."""

import os
from pathlib import Path
from typing import Any

from fastgcn.data.load import detect, load
from fastgcn.data.store import save
from fastgcn.errors import InputError

# Options that name columns or bound the sort; only tables have columns.
_TABLE_ONLY = ("id", "label", "split_column", "features", "source", "target", "weight", "memory")


def import_graph(
    source: str | None,
    nodes: Path | None,
    edges: Path | None,
    out: Path,
    /,  # tables have a column option of the name `source`
    *,
    force: bool = False,
    **options: Any,
) -> None:
    """Write the store `out` of a folder, file or name, or of a node and an edge table.

    `options` are those of `fastgcn.load`, or for tables those of `import_tables`, where
    `split_column` names the column of the split and `split="random"` draws one.
    """
    if (nodes is None) != (edges is None):
        raise InputError("--nodes and --edges go together")
    if (source is None) == (nodes is None):
        raise InputError("give either SOURCE or --nodes and --edges")
    if source is not None and Path(source).exists() and detect(source) == "tables":
        from fastgcn.data.readers.tables import table_files

        nodes, edges = table_files(Path(source))
    if nodes is not None and edges is not None:
        from fastgcn.data.tables import import_tables

        import_tables(nodes, edges, out, force=force, **_table_options(options))
        return
    assert source is not None
    for name in _TABLE_ONLY:
        if name in options:
            flag = "--" + name.replace("_", "-")
            raise InputError(f"{flag} is for tables; {source} is not a pair of tables")
    graph = load(source, **options)
    save(graph, out, force=force, source=os.path.basename(source), options=options)  # noqa: PTH119


def _table_options(options: dict[str, Any]) -> dict[str, Any]:
    options = dict(options)
    split, seed = options.pop("split", None), options.pop("seed", None)
    if split not in (None, "random"):
        raise InputError(
            f"--split of tables can only be random, got {split!r}; "
            "--split-column names the column that holds a split"
        )
    if split == "random":
        options["random_split"] = 0 if seed is None else seed
    elif seed is not None:
        raise InputError("--seed is the seed of --split random; pass that as well")
    if "split_column" in options:
        options["split"] = options.pop("split_column")
    if "features" in options:
        options["features"] = [name.strip() for name in options["features"].split(",")]
    return options
