"""The token scan row by row, compiled by numba. Imported only if numba is installed.

Conventions as in `sdssm.ops.numba_kernels`; here steps are rows of two-dimensional arrays: step t of row p is p L + t.
"""

# Kernels are compiled for several types of arrays, which one signature cannot express.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import math

from numba import float32, float64, int64, njit

from sdssm.ops.numba_kernels import FAST, INNER, KERNEL
from sdssm.ops.numba_vectors import VECTOR_BYTES, column_sums, outer_products, row_sums

add_four_vectors, add_vector = column_sums(4, 0, 2), column_sums(1, 0, 4)
add_four_entries, add_entry = column_sums(1, 4, 4), column_sums(1, 1, 4)
add_four_of_rows, add_entry_of_rows = row_sums(4), row_sums(1)
#: Rows of the gradient of a matrix that are summed together.
TILE = 4
add_wide_tile, add_small_tile, add_column_of_tile = (
    outer_products(TILE, *columns) for columns in ((2, 0), (2, 4), (1, 1))
)
add_entry_of_row = outer_products(1, 1, 1)
#: Numbers of the adjoints, and of the states, that are read at a time and stay in the first cache.
GROUP = 4096


@njit(**INNER)
def add_columns(columns, m, x, x_row, out, out_row):
    """Add sum_j x[x_row, j] columns[m, j] to out[out_row]."""
    size, lanes, i = columns.shape[2], VECTOR_BYTES // columns.itemsize, 0
    while i + 4 * lanes <= size:
        add_four_vectors(columns, m, x, x_row, out, out_row, i)
        i += 4 * lanes
    while i + lanes <= size:
        add_vector(columns, m, x, x_row, out, out_row, i)
        i += lanes
    while i + 4 <= size:
        add_four_entries(columns, m, x, x_row, out, out_row, i)
        i += 4
    while i < size:
        add_entry(columns, m, x, x_row, out, out_row, i)
        i += 1


@njit(fastmath=FAST, **KERNEL)
def token_forward(first, last, columns, index, drive, drive_index, x0, lengths, least, states, factors):
    """Fill states (P L, N) and factors (P L,) of the rows first..last.

    columns (M, N, N) are the transposed matrices, index (P, L) the number of the matrix of every step. drive (Q, N) is
    empty or holds what is added, and drive_index (P, L) its row for every step. x0 (P, N) or empty, lengths (P,).
    """
    length, size = index.shape[1], columns.shape[2]
    for row in range(first, last):
        for t in range(length):
            step, inside = row * length + t, t < lengths[row]
            source = drive_index[row, t] if inside and len(drive) else -1
            for i in range(size):
                states[step, i] = drive[source, i] if source >= 0 else 0
            if len(factors):
                factors[step] = 0
            if not inside:
                continue
            if t:
                add_columns(columns, index[row, t], states, step - 1, states, step)
            elif len(x0):
                add_columns(columns, index[row, t], x0, row, states, step)
            if len(factors):
                rescale_step(states, factors, step)
            for i in range(size):
                if abs(states[step, i]) < least:
                    states[step, i] = 0


@njit(**INNER)
def rescale_step(states, factors, step):
    """Divide a state by its l2 norm and store the factor; a zero vector stays zero, with factor 0."""
    largest = abs(states[step, 0])
    for i in range(1, states.shape[1]):
        size = abs(states[step, i])
        if size > largest or size != size:
            largest = size
    factors[step] = largest
    if largest != 0:
        total = largest * 0
        for i in range(states.shape[1]):
            size = abs(states[step, i]) / largest
            total += size * size
        factors[step] = 1 / (largest * math.sqrt(total))
        for i in range(states.shape[1]):
            states[step, i] *= factors[step]


@njit(fastmath=FAST, **KERNEL)
def token_backward(
    first, last, matrices, index, grad_states, grad_final, lengths, states, factors, least, adjoints, grad_x0
):
    """Fill the adjoints (P L, N) of the rows first..last, and their gradient of x0, (P, N).

    grad_states (P L, N), grad_final (P, N) and factors (P L,) may be empty.
    """
    length, size = index.shape[1], matrices.shape[2]
    for row in range(first, last):
        for t in range(length):
            for i in range(size):
                adjoints[row * length + t, i] = 0
        is_empty = lengths[row] == 0 and len(grad_final) > 0
        for i in range(size):
            grad_x0[row, i] = grad_final[row, i] if is_empty else 0
        for t in range(lengths[row] - 1, -1, -1):
            step = row * length + t
            if len(grad_states):
                for i in range(size):
                    adjoints[step, i] += grad_states[step, i]
            if len(grad_final) and t == lengths[row] - 1:
                for i in range(size):
                    adjoints[step, i] += grad_final[row, i]
            if len(factors):
                projection = factors[step] * 0
                for i in range(size):
                    projection += states[step, i] * adjoints[step, i]
                for i in range(size):
                    adjoints[step, i] = (adjoints[step, i] - states[step, i] * projection) * factors[step]
            for i in range(size):
                if abs(adjoints[step, i]) < least:
                    adjoints[step, i] = 0
            if t:
                add_columns(matrices, index[row, t], adjoints, step, adjoints, step - 1)
            else:
                add_columns(matrices, index[row, t], adjoints, step, grad_x0, row)


@njit(**KERNEL)
def sort_by_symbol(index, lengths, order, before, ends):
    """Sort the steps inside of the rows by their matrix, stably.

    index (P, L) is the matrix of each step, lengths (P,). order (P L,) receives the steps of matrix 0, first those with
    t = 0, then those of matrix 1, and so on; before (P L,) receives the row if t = 0, else the step before. ends (2 M,)
    receives where the steps of each matrix with t = 0 and t > 0 end.
    """
    length = index.shape[1]
    for group in range(len(ends)):
        ends[group] = 0
    for row in range(len(index)):
        for t in range(lengths[row]):
            ends[2 * index[row, t] + (t > 0)] += 1
    start = 0
    for group in range(len(ends)):
        count = ends[group]
        ends[group] = start
        start += count
    for row in range(len(index)):  # `ends` has the starts; each moves to the end as its group is filled
        for t in range(lengths[row]):
            group = 2 * index[row, t] + (t > 0)
            step = row * length + t
            order[ends[group]] = step
            before[ends[group]] = step - 1 if t else row
            ends[group] += 1


@njit(**INNER)
def add_outer_products(first, last, left, left_rows, right, right_rows, start, end, out, m):
    """Add left[left_rows[n], i] right[right_rows[n]] to the rows first..last i of out[m], for n in start..end."""
    size, wide = out.shape[2], 2 * VECTOR_BYTES // out.itemsize
    group = GROUP // size if size < GROUP // 16 else 16  # not `max`, which takes longer to compile
    for low in range(start, end, group):
        high = low + group if low + group < end else end
        i = first
        while i < last:
            rows, j = (TILE if i + TILE <= last else 1), 0
            while j < size:
                if rows == 1:
                    add_entry_of_row(left, left_rows, right, right_rows, low, high, out, m, i, j)
                    j += 1
                elif j + wide <= size:
                    add_wide_tile(left, left_rows, right, right_rows, low, high, out, m, i, j)
                    j += wide
                elif j + 8 <= size:
                    add_small_tile(left, left_rows, right, right_rows, low, high, out, m, i, j)
                    j += 8
                else:
                    add_column_of_tile(left, left_rows, right, right_rows, low, high, out, m, i, j)
                    j += 1
            i += rows


@njit(fastmath=FAST, **KERNEL)
def matrix_gradients(first, last, order, before, ends, adjoints, states, x0, grad_A, grad_b):
    """Fill tiles first..last of the rows of all gradients of matrices (M, N, N), and those entries of grad_b (M, N).

    adjoints and states (P L, N), x0 (P, N) or empty; order, before and ends as `sort_by_symbol` makes them. The sums
    do not depend on the number of threads.
    """
    size, start = grad_A.shape[2], int64(0)  # numba would compile functions again for a literal
    low, high = TILE * first, TILE * last if TILE * last < size else size
    for m in range(len(grad_A)):
        for i in range(low, high):
            grad_b[m, i] = 0
            for j in range(size):
                grad_A[m, i, j] = 0
        middle, end = ends[2 * m], ends[2 * m + 1]
        if len(x0):
            add_outer_products(low, high, adjoints, order, x0, before, start, middle, grad_A, m)
        add_outer_products(low, high, adjoints, order, states, before, middle, end, grad_A, m)
        i = low
        while i < high:
            if i + 4 <= high:
                add_four_of_rows(adjoints, order, start, end, grad_b, m, i)
                i += 4
            else:
                add_entry_of_rows(adjoints, order, start, end, grad_b, m, i)
                i += 1
        start = end


def compile_kernels() -> None:
    """Compile the kernels for what a training in float32 passes; `sdssm.first_start` does so before the first step."""
    number, numbers, index = int64, int64[::1], int64[:, ::1]
    values, rows, matrices = float32[::1], float32[:, ::1], float32[:, :, ::1]
    token_forward.compile((number, number, matrices, index, rows, index, rows, numbers, float64, rows, values))
    token_backward.compile((number, number, matrices, index, rows, rows, numbers, rows, values, float64, rows, rows))
    sort_by_symbol.compile((index, numbers, numbers, numbers, numbers))
    matrix_gradients.compile((number, number, numbers, numbers, numbers, rows, rows, rows, matrices, rows))
