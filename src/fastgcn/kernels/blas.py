"""Dense products in compiled code by numpy's BLAS, written into existing memory.

Compiled `np.dot` calls scipy's BLAS, an older one: for the small products of a step it takes 1.5
times as long as numpy's.
"""

import ctypes
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.core.errors import TypingError
from numba.extending import get_cython_function_address, intrinsic
from threadpoolctl import threadpool_info

cgutils: Any = untyped_cgutils

_SYMBOL = "scipy_sgemm_64_"  # as numpy's wheels name it


@cache
def sgemm_address() -> int:
    """The address of Fortran's `sgemm`: numpy's if its wheel contains one, or scipy's."""
    for library in threadpool_info():
        if library["user_api"] == "blas":
            found = getattr(ctypes.CDLL(library["filepath"]), _SYMBOL, None)
            if found is not None:
                return ctypes.cast(found, ctypes.c_void_p).value or 0
    address: int = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    return address


def _multiply(
    _: Any,
    sgemm: Any,  # noqa: ARG001
    shape: Any,
    a: Any,
    a_start: Any,  # noqa: ARG001
    a_step: Any,  # noqa: ARG001
    a_turned: Any,  # noqa: ARG001
    b: Any,
    b_start: Any,  # noqa: ARG001
    b_turned: Any,  # noqa: ARG001
    adds: Any,  # noqa: ARG001
    out: Any,
    start: Any,  # noqa: ARG001
) -> Any:
    integer, flag = types.int64, types.boolean
    takes = (integer, shape, a, integer, integer, flag, b, integer, flag, flag, out, integer)
    return types.void(*takes), _generate_call


def _generate_call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    sgemm, shape, a, a_start, a_step, a_turned, b, b_start, b_turned, adds, out, start = arguments
    rows, inner, columns = cgutils.unpack_tuple(builder, shape)
    byte = ir.IntType(8)

    def stored(value: Any) -> Any:
        place = cgutils.alloca_once(builder, value.type)
        builder.store(value, place)
        return builder.bitcast(place, byte.as_pointer())

    def size(value: Any) -> Any:
        # Passed as 64 bits: a BLAS that expects 32 reads the lower half, which comes first.
        one = ir.Constant(value.type, 1)
        return stored(builder.select(builder.icmp_signed("<", value, one), one, value))

    def letter(turned: Any) -> Any:
        return stored(builder.select(turned, byte(ord("T")), byte(ord("N"))))

    def data(array: Any, number: int, offset: Any) -> Any:
        pointer = context.make_array(signature.args[number])(context, builder, array).data
        return builder.bitcast(builder.gep(pointer, [offset]), byte.as_pointer())

    zero, one = (ir.Constant(ir.FloatType(), value) for value in (0.0, 1.0))
    # Fortran sees every row-major matrix transposed: outᵀ = bᵀ·aᵀ.
    values = [
        letter(b_turned),
        letter(a_turned),
        stored(columns),
        stored(rows),
        stored(inner),
        stored(one),
        data(b, 6, b_start),
        size(builder.select(b_turned, inner, columns)),
        data(a, 2, a_start),
        size(a_step),
        stored(builder.select(adds, one, zero)),
        data(out, 10, start),
        size(columns),
    ]
    kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer()] * len(values))
    builder.call(builder.inttoptr(sgemm, kind.as_pointer()), values)
    return context.get_dummy_value()


# multiply(sgemm, (rows, inner, columns), a, a_start, a_step, a_turned, b, b_start, b_turned, adds,
# out, start), in compiled functions only: out[start:] = the (rows, columns) product of a[a_start:]
# and b[b_start:], or += with `adds`. Those that are `turned` are stored transposed; stored rows of
# a are `a_step` apart. Flat float32 arrays, bounds not checked; `sgemm` is `sgemm_address()`.
multiply: Any = intrinsic(_multiply)


LANES = 8


def _add_scaled(_: Any, out: Any, at: Any, value: Any, other: Any, start: Any) -> Any:  # noqa: ARG001
    if any(array.layout != "C" or array.dtype != types.float32 for array in (out, other)):
        raise TypingError("add_scaled takes contiguous float32 arrays")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, at, value, source, start = arguments
        lanes = ir.VectorType(ir.FloatType(), LANES)

        def place(array: Any, kind: Any, offset: Any) -> Any:
            data = context.make_array(kind)(context, builder, array).data
            return builder.bitcast(builder.gep(data, [offset]), lanes.as_pointer())

        into = place(target, signature.args[0], at)
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        all_lanes = builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), places)
        added = builder.load(place(source, signature.args[3], start), align=4)
        total = builder.fadd(builder.load(into, align=4), builder.fmul(all_lanes, added))
        builder.store(total, into, align=4)
        return context.get_dummy_value()

    return types.void(out, types.intp, types.float32, other, types.intp), generate


# add_scaled(out, at, value, other, start), in compiled functions only:
# out[at + j] += value · other[start + j] for j < LANES; flat float32 arrays, bounds not checked.
add_scaled: Any = intrinsic(_add_scaled)
