"""scikit-learn's handwritten digits as a graph: real data that needs no download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.graph.graph import Graph

_NEIGHBOURS = 8  # enough to join all images into one component; 6 are not


def load_digits() -> Graph:
    """1,797 images of 8 × 8 pixels, each joined to the 8 that look most like it.

    Features are the 64 pixels in [0, 1], classes the digits; the graph is undirected, without
    weights. The split is 60/20/20, stratified, always the same.

    >>> load_digits()
    Graph(digits: 1,797 nodes, 9,929 undirected edges, 64 features, 10 classes)
    """
    from fastgcn.data.splits import stratified_split

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

    Importing scikit-learn takes a second; it does it where the file is not found.
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
    holds exactly, whatever the order of summation, and the result is the same on every machine.
    Of equally near rows those with the smaller id count as nearer.

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
