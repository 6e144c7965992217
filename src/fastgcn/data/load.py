"""`load`: a graph from a path or a name, in any known format."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastgcn.data.objects import as_graph
from fastgcn.data.readers import READERS, table_files
from fastgcn.data.readers.parts import check_options, choice
from fastgcn.data.splits import SHARES, with_split
from fastgcn.data.splits import random_split as draw_split
from fastgcn.data.store import MANIFEST, is_store, open_store, save
from fastgcn.errors import FormatError, InputError, MissingFileError, nearest
from fastgcn.graph.graph import Graph
from fastgcn.writing import recover

_LISTED = 20  # most files that a message names


def load(name_or_path: Any, **options: Any) -> Graph:
    """Load a graph from a file, a folder or by name, or convert one of another library.

    An existing path takes precedence over a name. A store opens memory-mapped. The format of
    other files and folders is recognised by file names, or given by `format=`:

    * `planetoid`, options `name`, `split` (`full`, `authors`, `public`);
    * `graphsage`, options `name`, `prefix`, `links`, `directed`;
    * `graphsaint`, `reddit-fastgcn`, `reddit-dgl`, `gnn-benchmark`, `npz`, options `name`,
      `directed`;
    * `ogb`, options `name`, `split`, `directed`, `features`;
    * `pyg`, a `.pt` file of a PyG `Data`;
    * `tables`, with the options of `fastgcn.data.tables.import_tables`.

    Names are `digits`, which comes with the package; `cora`, `citeseer`, `pubmed`, which are
    downloaded once; `reddit-sim`, `products-sim`, which are generated once; and those of the
    data sets in the folder `FASTGCN_DATA`.

    A `Data` of PyG, a networkx graph and (graph, labels) of OGB are converted (`Graph.from_pyg`,
    `Graph.from_networkx`); `options` are those of the conversion.

    With `split="random"`, `stratified_split` makes a new split of the labelled nodes, from `seed`
    and the shares `train`, `val`, `test`. A labelled graph without a split gets one as well, with
    seed 0, and a sentence says so.

    >>> load("digits")
    Graph(digits: 1,797 nodes, 9,929 undirected edges, 64 features, 10 classes)
    >>> len(load("digits", split="random", seed=1, train=0.5).split.train)
    899
    """
    if not isinstance(name_or_path, str | os.PathLike):
        split = _take_random_split(options)
        graph = as_graph(name_or_path, **options)
        return with_split(graph) if split is None else draw_split(graph, **split)
    if os.fspath(name_or_path) in ("", b"") or "\0" in str(name_or_path):
        raise InputError(f"load takes a path or a name, got {name_or_path!r}")
    path = Path(name_or_path).expanduser()
    recover(path)
    data = str(path.resolve()) if path.exists() else os.fspath(name_or_path)
    source = {"data": data, **options}
    random_split = _take_random_split(options)
    graph = _read(path, options) if path.exists() else _by_name(name_or_path, options)
    if random_split is not None:
        return draw_split(graph, **random_split).with_source(source)
    graph = with_split(graph)
    return graph.with_source({**source, **(graph.source or {})})


def load_again(source: Mapping[str, Any] | None, run: str | os.PathLike[str]) -> Graph:
    """The graph that a run was trained on, loaded as it was then; `source` is `Run.source`."""
    if not source or "data" not in source:
        raise InputError(f"{run} was trained on a graph made in memory; name the data to use")
    options = dict(source)
    return load(options.pop("data"), **options)


def detect(path: str | os.PathLike[str]) -> str:
    """The name of the format of a file or folder, by the names of its files."""
    path = Path(path).expanduser()
    if not path.exists():
        raise MissingFileError(f"there is no file or folder {path}")
    if is_store(path):
        return "store"
    found = [reader.format for reader in READERS if reader.matches(path)]
    if len(found) == 1:
        return found[0]
    if found:
        raise FormatError(
            f"{path} can be read as {' or as '.join(found)}: choose one by format= in Python, or "
            "move the files of one of them to another folder"
        )
    raise FormatError(_nothing_found(path))


def _take_random_split(options: dict[str, Any]) -> dict[str, Any] | None:
    """Remove the options of a random split from `options`; None if split is not random."""
    given = [name for name in SHARES if name in options]
    if options.get("split") == "random":
        del options["split"]
        return {name: options.pop(name) for name in given}
    if given:
        raise InputError(f"{given[0]} is an option of split='random' only; pass that as well")
    return None


def _read(path: Path, options: dict[str, Any]) -> Graph:
    known = {reader.format: reader.read for reader in READERS} | {"store": open_store}
    kind = options.pop("format", None)
    if kind is None:
        kind = detect(path)
    choice(kind, known, "format")
    check_options(known[kind], options, kind, also=("format", "split", *SHARES))
    return known[kind](path, **options)


def _by_name(name: str | os.PathLike[str], options: dict[str, Any]) -> Graph:
    from fastgcn.data import registry
    from fastgcn.data.generate_config import PRESETS

    text = os.fspath(name)
    if text == "digits":
        check_options(registry.load_digits, options, "digits")
        return registry.load_digits(**options)
    if text in registry.PLANETOID:
        if "name" in options:
            raise InputError(f"{text!r} is a name already; leave out name={options['name']!r}")
        return _read(registry.fetch_planetoid(text), options | {"name": text})
    if text in PRESETS:
        return _read(registry.fetch_generated(text), options)
    local = registry.find_local(text)
    if local is not None:
        return _read(local, options)
    if isinstance(name, os.PathLike) or Path(text).name != text:
        raise MissingFileError(f"there is no file or folder {text}")
    names = registry.known_names()
    raise InputError(
        f"{text!r} is neither a file or folder nor a known data set{nearest(text, names)} "
        f"(known are {', '.join(names)})"
    )


def _nothing_found(path: Path) -> str:
    if not path.is_file() and not path.is_dir():
        return f"{path} is a pipe or a device; pass a file or a folder"
    if path.is_file():
        folder = [reader.format for reader in READERS if reader.matches(path.parent)]
        hint = f"; pass the folder {path.parent}, which is {folder[0]}" if folder else ""
        return f"{path} is not in a format that can be read{hint}; {_looked_for()}"
    names = sorted(f.name + "/" * f.is_dir() for f in path.iterdir())
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return f"{path} is in no known format: it holds {listed or 'nothing'}; {_looked_for()}"


def _looked_for() -> str:
    formats = {"store": MANIFEST} | {reader.format: reader.expects for reader in READERS}
    return "looked for " + "; ".join(f"{name}: {files}" for name, files in formats.items())


# Options that only tables have: they name columns, or bound the memory of the sort.
_TABLE_ONLY = (
    "id", "label", "split_column", "features", "source", "target", "weight", "memory",
    "drop", "numeric", "categorical", "text", "date", "scale", "default_weight", "type_column",
    "types", "unknown", "like", "structure", "degree", "task",
)  # fmt: skip


def import_graph(
    source: str | None,
    nodes: str | os.PathLike[str] | None,
    edges: Any,
    out: Path,
    /,  # tables have a column option of the name `source`
    *,
    force: bool = False,
    **options: Any,
) -> None:
    """Write the store `out` from a folder, file or name, or from a node and an edge table.

    `options` are those of `fastgcn.load`. For tables they are those of `import_tables`, but
    `split_column` names the column of the split, and `split="random"` draws one.
    """
    if (nodes is None) != (edges is None):
        raise InputError("--nodes and --edges go together")
    if (source is None) == (nodes is None):
        raise InputError("give either SOURCE or --nodes and --edges")
    if source is not None and Path(source).exists() and detect(source) == "tables":
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
    if split not in (None, "random", "none"):
        raise InputError(
            f"--split of tables can only be random or none, got {split!r}; "
            "--split-column names the column that holds a split"
        )
    if split == "random":
        options["random_split"] = 0 if seed is None else seed
    elif split == "none":
        options["random_split"] = False
    elif seed is not None:
        raise InputError("--seed is the seed of --split random; pass that as well")
    if "split_column" in options:
        options["split"] = options.pop("split_column")
    for name in ("features", "drop", "numeric", "categorical", "text", "date"):
        if name in options:
            options[name] = [each.strip() for each in options[name].split(",")]
    if "types" in options:
        options["types"] = dict(_type_weight(each) for each in options["types"].split(","))
    return options


def _type_weight(text: str) -> tuple[str, float]:
    """A type of edges and its weight, from `card` or `card=0.5`."""
    name, equals, weight = text.strip().rpartition("=")
    if not equals:
        return weight, 1.0
    try:
        return name.strip(), float(weight)
    except ValueError:
        raise InputError(f"--types must be such as card=0.5,transfer=1, got {text!r}") from None
