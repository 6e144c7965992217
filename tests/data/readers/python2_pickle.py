"""Writes pickles as Python 2 did: text for bytes, and the module names of that time."""

import struct
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import AnyArray


def array_pickle(array: AnyArray) -> bytes:
    return b"\x80\x02" + _array(array) + b"."


def matrix_pickle(matrix: csr_array) -> bytes:
    """With entries of the old class's dictionary that no reader needs."""
    state = b"}(" + _text("format") + _text("csr") + _text("maxprint") + _number(50)
    state += _text("_shape") + b"(" + b"".join(map(_number, matrix.shape)) + b"t"
    for part in ("data", "indices", "indptr"):
        state += _text(part) + _array(getattr(matrix, part))
    return b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81" + state + b"ub."


def lists_pickle(lists: Mapping[int, Sequence[int]]) -> bytes:
    body = b"\x80\x02ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R("
    for node, others in lists.items():
        body += _number(node) + b"](" + b"".join(map(_number, others)) + b"e"
    return body + b"u."


def _array(array: AnyArray) -> bytes:
    kind = array.dtype.str
    dtype = b"cnumpy\ndtype\n" + _text(kind[1:]) + b"K\x00K\x01\x87R(K\x03" + _text(kind[0])
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"(" + b"".join(map(_number, array.shape)) + b"t"
    raw = np.ascontiguousarray(array).tobytes()
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
    return start + shape + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"


def _text(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode()


def _number(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)
