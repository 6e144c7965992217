"""Files of PyG (torch_geometric): one `Data`, as `torch.save` writes it."""

from collections.abc import Mapping
from pathlib import Path

from fastgcn.data.readers.parts import Reader, default_name, naming
from fastgcn.errors import FormatError, InputError, library
from fastgcn.graph.graph import Graph


def _read(
    path: Path,
    *,
    name: str | None = None,
    directed: bool | None = None,
    mask_column: int | None = None,
) -> Graph:
    """A file of `torch.save(data, path)`, or of a PyG data set's processed folder.

    Args:
        path: the file.
        name: the graph's name; by default the file's.
        directed: as in `Graph.from_pyg`.
        mask_column: the column of masks that hold several splits.

    Only tensors, numbers, text and PyG's own containers are loaded; nothing else is executed.
    """
    import torch

    geometric = library("torch_geometric.data", extra="pyg")
    data_module = library("torch_geometric.data.data", extra="pyg")
    storage = library("torch_geometric.data.storage", extra="pyg")
    known = [geometric.Data, data_module.DataEdgeAttr, data_module.DataTensorAttr]
    known += [storage.GlobalStorage, storage.BaseStorage, storage.NodeStorage, storage.EdgeStorage]
    try:
        with torch.serialization.safe_globals(known):
            found = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(found, tuple) and found:  # a data set: its one graph comes first
            if len(found) > 1 and found[1] is not None:
                raise FormatError(f"{path} holds several graphs; save one of them as a Data")
            found = found[0]
        data = geometric.Data.from_dict(dict(found)) if isinstance(found, Mapping) else found
    except FormatError:
        raise
    except Exception as error:  # torch and PyG raise whatever a damaged file leads to
        reason = " ".join(str(error).split()).partition(". ")[0][:200]
        raise FormatError(
            f"{path} cannot be loaded as a Data of PyG without executing code in it: {reason}"
        ) from None
    with naming(path):
        if not isinstance(data, geometric.Data):
            raise InputError(f"it must hold a Data of PyG, got {type(data).__name__}")
        return Graph.from_pyg(
            data, name=name or default_name(path), directed=directed, mask_column=mask_column
        )


PYG = Reader(
    "pyg",
    "one .pt file of a PyG Data",
    lambda path: path.is_file() and path.suffix in (".pt", ".pth"),
    _read,
)
