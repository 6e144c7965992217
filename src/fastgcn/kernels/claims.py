"""Work that threads claim piece by piece in compiled code, without Python's lock.

A counter is an array (2,) int64 that begins at zero: what was claimed, and how many pieces ended.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from fastgcn.arrays import IntArray
from fastgcn.machine import pool_threads, share


def over_claims(work: Callable[[IntArray], None], pieces: int) -> None:
    """Call work(counter) once on each of `pool_threads()` threads, or on fewer if pieces are few.

    Compiled code claims one piece after the other and counts those that have ended. The caller goes
    on when the last one has, whether or not all helpers are back in Python.
    """
    counter, threads = np.zeros(2, np.int64), min(pool_threads(), max(pieces, 1))
    share(
        lambda _, __: work(counter),
        [(number, number + 1) for number in range(threads)],
        lambda: bool(_wait_for(counter, pieces)),
    )


def _claim(_: Any, counter: Any, count: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, arguments[1], "monotonic")

    return types.int64(types.Array(types.int64, 1, "C"), types.int64), generate


# claim(counter, count), in compiled functions only: counter[0], to which `count` is added. Threads
# that claim from one counter never get the same numbers.
claim: Any = intrinsic(_claim)


def _end_piece(_: Any, counter: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        one = context.get_constant(types.int64, 1)
        builder.atomic_rmw("add", builder.gep(data, [one]), one, "release")
        return context.get_dummy_value()

    return types.void(types.Array(types.int64, 1, "C")), generate


# end_piece(counter), in compiled functions only: counter[1] += 1, once all that was written before
# can be seen by a thread that waits for it.
end_piece: Any = intrinsic(_end_piece)


def _generate_ended(_: Any, counter: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [context.get_constant(types.int64, 1)])
        return builder.load_atomic(place, "acquire", align=8)

    return types.int64(types.Array(types.int64, 1, "C")), generate


_pieces_ended: Any = intrinsic(_generate_ended)


# Looks at a counter that take some 50 microseconds, as long as it takes to wait by a lock.
_LOOKS = 20_000


@njit(cache=True, nogil=True)
def _wait_for(counter: IntArray, pieces: int) -> bool:
    """Wait until so many pieces have ended, but not for long: False if they have not by then."""
    looks = 0
    while _pieces_ended(counter) < pieces and looks < _LOOKS:
        looks += 1
    return looks < _LOOKS
