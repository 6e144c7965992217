"""Data sets known by name: where they are, and how they are downloaded or made.

It reads three environment variables: `FASTGCN_DATA`, a folder of data sets that are used as
they are; `FASTGCN_CACHE`, the folder for downloaded and generated ones; `FASTGCN_MIRROR`, the
address to download Planetoid's files from.
"""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.data.download import download
from fastgcn.data.generate_config import PRESETS
from fastgcn.data.splits import stratified_split
from fastgcn.data.store import is_store
from fastgcn.errors import InputError, MissingFileError, nearest
from fastgcn.graph.graph import Graph
from fastgcn.locks import locked
from fastgcn.text import printable

PLANETOID_URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"

# The git blob id of every published file.
PLANETOID = {
    "cora": {
        "ind.cora.x": "c4a91d008245403e7f26aa616b437191509793c0",
        "ind.cora.y": "58e30ef120d3553cfaac33ff28c6b5436dbef661",
        "ind.cora.tx": "6e856d777401ee15dc8619db76c97d0a40ba2d60",
        "ind.cora.ty": "da1734ab670b5c8ecee78a9c30b35566df916f4b",
        "ind.cora.allx": "44d53b1fece343538e45592caac521d73c6f98d6",
        "ind.cora.ally": "04fbd0b083d09341fcf16b395c642329637f0542",
        "ind.cora.graph": "4d3bf85dfc8b1c105a2c995597a1b3eed6947925",
        "ind.cora.test.index": "ded8092db4cd767a367eebe09003b954a5316f24",
    },
    "citeseer": {
        "ind.citeseer.x": "f094104a66f2689ffbd01085fe6a856689e9db9e",
        "ind.citeseer.y": "e857ac49b611da98e101a068cf4855350274f68a",
        "ind.citeseer.tx": "b2aff18aa1fc6f4f5e8c64db7643b59b24e42584",
        "ind.citeseer.ty": "3795f79df0cd1123f4478b77c148a5fbacc4cefb",
        "ind.citeseer.allx": "592091071ac35b78599c722d0e60b1c655711728",
        "ind.citeseer.ally": "7503f81a0b6ac1cc21cb5a97073542a6b1dfe99c",
        "ind.citeseer.graph": "a01dca663d0103c130f525017a4a9c313037e286",
        "ind.citeseer.test.index": "62d9e3d5ed53c66b069125af98529d76c70d9b3e",
    },
    "pubmed": {
        "ind.pubmed.x": "16c0eca8d2b3297014ff80327416f9332eda10d7",
        "ind.pubmed.y": "e86670576c85340eeb2271b3c918bfa89322b2cf",
        "ind.pubmed.tx": "eee4f3c988fde0da87a9ec7b01ca5e7863c1b1f1",
        "ind.pubmed.ty": "225a0bb9bb6430e3925d04688daf6a0da964c07a",
        "ind.pubmed.allx": "3b86bccf08111c37c632a9dd8ab63db25ea76361",
        "ind.pubmed.ally": "4c8bcdc80882dd225fe4dd4fafd723baa616ac97",
        "ind.pubmed.graph": "76eb87e628a6b9d43fc31ea42c8c6c8f3e52b404",
        "ind.pubmed.test.index": "41f6befcb7750cc4858cb852f2b349a9598cb2f4",
    },
}

# The sizes of those files in bytes; of ind.pubmed.allx only that it is below the limit.
PLANETOID_SIZES = {
    "ind.citeseer.allx": 595_021,
    "ind.citeseer.ally": 55_623,
    "ind.citeseer.graph": 61_987,
    "ind.citeseer.test.index": 5_000,
    "ind.citeseer.tx": 260_321,
    "ind.citeseer.ty": 24_135,
    "ind.citeseer.x": 31_087,
    "ind.citeseer.y": 3_014,
    "ind.cora.allx": 257_305,
    "ind.cora.ally": 47_959,
    "ind.cora.graph": 59_847,
    "ind.cora.test.index": 5_000,
    "ind.cora.tx": 148_025,
    "ind.cora.ty": 28_135,
    "ind.cora.x": 22_119,
    "ind.cora.y": 4_054,
    "ind.pubmed.ally": 224_739,
    "ind.pubmed.graph": 471_808,
    "ind.pubmed.test.index": 6_000,
    "ind.pubmed.tx": 405_505,
    "ind.pubmed.ty": 12_135,
    "ind.pubmed.x": 23_172,
    "ind.pubmed.y": 854,
}
_LARGEST = 1 << 25


def data_folder() -> Path | None:
    """The folder that `FASTGCN_DATA` names; None if it is not set."""
    value = os.environ.get("FASTGCN_DATA")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise MissingFileError(
            f"FASTGCN_DATA must name a folder, but there is none at {folder}; "
            "correct it or unset it"
        )
    return folder


def cache_folder() -> Path:
    """The folder for downloaded and generated data; it need not exist yet."""
    if own := os.environ.get("FASTGCN_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "fastgcn"
    return Path.home() / ".cache" / "fastgcn"


def fetch_planetoid(name: str) -> Path:
    """The folder with the eight files `ind.NAME.*`; missing files are downloaded.

    Files under `FASTGCN_DATA` or in the cache are used as they are. Downloaded files are
    compared with the published ones.
    """
    if name not in PLANETOID:
        raise InputError(
            f"Planetoid's data sets are {', '.join(PLANETOID)}, got {name!r}"
            f"{nearest(name, PLANETOID)}"
        )
    files = PLANETOID[name]
    if data := data_folder():
        for folder in (data / "planetoid", data / name, data):
            if all((folder / file).is_file() for file in files):
                return folder
    cache = cache_folder() / "planetoid"
    mirror = (os.environ.get("FASTGCN_MIRROR") or PLANETOID_URL).rstrip("/")
    for file, git_blob in files.items():
        if not (cache / file).is_file():
            size = PLANETOID_SIZES.get(file)
            url = f"{mirror}/{file}"
            download(url, cache / file, git_blob=git_blob, size=size, most=_LARGEST)
    return cache


def fetch_generated(name: str) -> Path:
    """The store of a generated data set; it is made in the cache if there is none yet."""
    if name not in PRESETS:
        raise InputError(
            f"generated data sets are {', '.join(PRESETS)}, got {name!r}{nearest(name, PRESETS)}"
        )
    data = data_folder()
    if data is not None and is_store(data / name):
        return data / name
    store = cache_folder() / name
    if is_store(store):
        return store
    from fastgcn.data.generate import generate

    store.parent.mkdir(parents=True, exist_ok=True)
    with locked(store.with_name(f".{name}.generating"), str(store), wait=True):
        if not is_store(store):  # another process may have made it
            print(printable(f"Generating {name} in {store}; this is done once"), file=sys.stderr)
            generate(PRESETS[name], store)
    return store


def find_local(name: str) -> Path | None:
    """The data set called `name` under `FASTGCN_DATA`, or the store of that name in the cache.

    `-` and `_` are the same in names.
    """
    if not name or name.startswith(".") or Path(name).name != name:  # a path is not a name
        return None
    spellings = list(dict.fromkeys((name, name.replace("-", "_"), name.replace("_", "-"))))
    if data := data_folder():
        for folder in (data, data / "npz"):
            for spelling in spellings:
                if _is_data_set(folder / spelling):
                    return folder / spelling
        for spelling in spellings:
            if (data / f"{spelling}.npz").is_file():
                return data / f"{spelling}.npz"
    stores = (cache_folder() / spelling for spelling in spellings)
    return next((store for store in stores if is_store(store)), None)


def known_names() -> list[str]:
    """Every name that can be loaded: the built-in ones, then what `find_local` finds."""
    return list(dict.fromkeys(("digits", *PLANETOID, *PRESETS, *sorted(_local_names()))))


def _local_names() -> Iterator[str]:
    if data := data_folder():
        for folder in (data, data / "npz"):
            yield from (path.name for path in _entries(folder) if _is_data_set(path))
        yield from (path.stem for path in _entries(data) if path.suffix == ".npz")
    yield from (path.name for path in _entries(cache_folder()) if is_store(path))


def _entries(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _is_data_set(folder: Path) -> bool:
    """True if this is the folder of one data set, not of several."""
    several = folder.name in ("npz", "planetoid")
    return not several and folder.is_dir() and any(folder.iterdir())


# Neighbours of a digit: 8 join all images into one component, 6 do not.
_NEIGHBOURS = 8


def load_digits() -> Graph:
    """1,797 images of 8 × 8 pixels, each joined to the 8 that look most like it.

    Features are the 64 pixels in [0, 1], classes the digits; the graph is undirected, without
    weights. The split is 60/20/20, stratified, always the same.

    >>> load_digits()
    Graph(digits: 1,797 nodes, 9,929 undirected edges, 64 features, 10 classes)
    """
    pixels, labels = _images()
    neighbours = nearest_rows(pixels, _NEIGHBOURS)
    return Graph.from_edges(
        np.repeat(np.arange(len(pixels)), _NEIGHBOURS),
        neighbours.ravel(),
        features=pixels / 16,
        labels=labels,
        split=stratified_split(labels, train=0.6, val=0.2, test=0.2, seed=0),
        class_names=[str(digit) for digit in range(10)],
        name="digits",
    )


def _images() -> tuple[FloatArray, IntArray]:
    """Pixels (1797, 64) and digits (1797,), from the file that scikit-learn ships.

    Importing scikit-learn takes a second, so it is imported only if the file is not found.
    """
    found = find_spec("sklearn")
    for place in (found and found.submodule_search_locations) or ():
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits as bundled

    pixels, labels = bundled(return_X_y=True)
    return pixels, labels


def nearest_rows(points: FloatArray, k: int) -> IntArray:
    """(n, k) ids of the k rows of `points` (n, F) nearest to each row, itself left out.

    `points` must be small whole numbers: then squared distances are whole numbers that float64
    holds exactly in any order of summation, and the result is the same on every machine.
    Of equally near rows, the one with the smaller id counts as nearer.

    >>> nearest_rows(np.array([[0.0], [1.0], [2.0], [9.0]]), 1).tolist()
    [[1], [0], [1], [2]]
    """
    n = len(points)
    squares = (points**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * points @ points.T
    np.fill_diagonal(distances, distances.max() + 1)
    ranks = distances * n + np.arange(n)  # all different in a row: ties go to the smaller id
    nearest: IntArray = np.argpartition(ranks, k - 1, axis=1)[:, :k]
    return nearest
