"""Inner loops written as vector instructions, for kernels that numba compiles: sums that stay in registers.

The compiler does not keep a sum over many vectors in registers, since it cannot know that the result overlaps none of
them: it loads and stores the sum for each product, and checks the overlaps at run time. The arguments are whole arrays
and the numbers of rows, because numba counts references to each slice that is a variable. The order of each sum
depends on the sizes alone.

numba's cache does not notice a change of this file alone: remove the files `__pycache__/*.nb?` after one.
"""

# numba passes its own types and builders to these functions.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

#: The size of a vector register. On machines with smaller ones the compiler splits the vectors.
VECTOR_BYTES = 64 if binding.get_host_cpu_features().get("avx512f") else 32

INT = ir.IntType(64)
CONTRACT = ("contract",)


def constant(value):
    return ir.Constant(INT, value)


class VectorBuilder:
    """Emits instructions for contiguous arrays of one dtype, with vectors of `lanes` numbers."""

    def __init__(self, context, builder, kind, lanes):
        self.context, self.builder = context, builder
        self.bytes = kind.dtype.bitwidth // 8
        self.lanes = lanes or VECTOR_BYTES // self.bytes
        self.vector = ir.VectorType(context.get_value_type(kind.dtype), self.lanes)
        self.zero = ir.Constant(self.vector, None)

    def array(self, kind, value):
        return self.context.make_array(kind)(self.context, self.builder, value)

    def size(self, array, axis):
        return self.builder.extract_value(array.shape, axis)

    def place(self, array, row, column):
        """Return a pointer to an entry of an array (rows, columns); of three dimensions the first two count as rows."""
        width = self.builder.extract_value(array.shape, array.shape.type.count - 1)
        return self.builder.gep(array.data, [self.builder.add(self.builder.mul(row, width), column)])

    def load(self, pointer, number=0):
        """Return vector `number` after the pointer."""
        place = self.builder.gep(pointer, [constant(number * self.lanes)])
        value = self.builder.load(self.builder.bitcast(place, self.vector.as_pointer()))
        value.align = self.bytes
        return value

    def store(self, value, pointer, number=0):
        place = self.builder.gep(pointer, [constant(number * self.lanes)])
        self.builder.store(value, self.builder.bitcast(place, self.vector.as_pointer())).align = self.bytes

    def spread(self, pointer):
        """Return a vector with the number at the pointer in all lanes."""
        undefined, numbers = ir.Constant(self.vector, ir.Undefined), ir.VectorType(ir.IntType(32), self.lanes)
        single = self.builder.insert_element(undefined, self.builder.load(pointer), ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(single, undefined, ir.Constant(numbers, None))

    def multiply_add(self, a, b, total):
        return self.builder.fadd(self.builder.fmul(a, b, flags=CONTRACT), total, flags=CONTRACT)

    def loop(self, start, stop, step, totals, body):
        """Emit `for n in range(start, stop, step): totals = body(n, totals)` and return the totals."""
        builder, before = self.builder, self.builder.block
        head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        n, phis = builder.phi(INT), [builder.phi(self.vector) for _ in totals]
        builder.cbranch(builder.icmp_signed("<", n, stop), inside, after)
        builder.position_at_end(inside)
        results = [builder.add(n, constant(step)), *body(n, list(phis))]
        for phi, first, result in zip([n, *phis], [start, *totals], results, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(result, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return phis


def column_sums(vectors, lanes, phases):
    """Return a function that adds sum_j x[x_row, j] columns[m, j] to out[out_row], for some entries from i on.

    columns (M, K, N), x (rows, K), out (rows, N). The entries are those of `vectors` vectors of so many lanes, 0: a
    whole register. Sums over every `phases`-th column are separate, so that fewer additions wait for each other.
    """

    @intrinsic
    def add_columns_block(typing_context, columns, m, x, x_row, out, out_row, i):
        def emit(context, builder, signature, args):
            code = VectorBuilder(context, builder, columns, lanes)
            table, numbers, result = (code.array(signature.args[at], args[at]) for at in (0, 2, 4))
            count = code.size(table, 1)
            whole = builder.sub(count, builder.urem(count, constant(phases)))
            top, factors = builder.mul(args[1], count), code.place(numbers, args[3], constant(0))
            target = code.place(result, args[5], args[6])

            def add(j, totals, number):
                for phase in range(number):
                    at = builder.add(j, constant(phase))
                    column = code.place(table, builder.add(top, at), args[6])
                    factor = code.spread(builder.gep(factors, [at]))
                    for v in range(vectors):
                        total = phase * vectors + v
                        totals[total] = code.multiply_add(code.load(column, v), factor, totals[total])
                return totals

            totals = [code.load(target, v) for v in range(vectors)] + [code.zero] * (vectors * (phases - 1))
            totals = code.loop(constant(0), whole, phases, totals, lambda j, totals: add(j, totals, phases))
            while len(totals) > vectors:
                half = len(totals) // 2
                totals = [builder.fadd(*pair) for pair in zip(totals[:half], totals[half:], strict=True)]
            totals = code.loop(whole, count, 1, totals, lambda j, totals: add(j, totals, 1))
            for v in range(vectors):
                code.store(totals[v], target, v)
            return context.get_dummy_value()

        row = types.intp
        return types.void(columns, row, x, row, out, row, row), emit

    return add_columns_block


def outer_products(rows, vectors, lanes):
    """Return a function that adds the sum over n of left[left_rows[n]] right[right_rows[n]]^T to a block of out[m].

    out (M, N, N), n in first..last. The block starts at (i, j) and has so many rows, of `vectors` vectors.
    """

    @intrinsic
    def add_outer_block(typing_context, left, left_rows, right, right_rows, first, last, out, m, i, j):
        def emit(context, builder, signature, args):
            code = VectorBuilder(context, builder, out, lanes)
            a, a_rows, b, b_rows, result = (code.array(signature.args[at], args[at]) for at in (0, 1, 2, 3, 6))
            start, stop, (number, row, column) = args[4], args[5], args[7:]
            top = builder.add(builder.mul(number, code.size(result, 1)), row)
            targets = [code.place(result, builder.add(top, constant(r)), column) for r in range(rows)]

            def add(n, totals):
                factors, others = (
                    code.place(array, builder.load(builder.gep(numbers.data, [n])), at)
                    for array, numbers, at in ((a, a_rows, row), (b, b_rows, column))
                )
                loaded = [code.load(others, v) for v in range(vectors)]
                for r in range(rows):
                    factor = code.spread(builder.gep(factors, [constant(r)]))
                    for v in range(vectors):
                        at = r * vectors + v
                        totals[at] = code.multiply_add(loaded[v], factor, totals[at])
                return totals

            places = [(target, v) for target in targets for v in range(vectors)]
            totals = code.loop(start, stop, 1, [code.load(*place) for place in places], add)
            for total, place in zip(totals, places, strict=True):
                code.store(total, *place)
            return context.get_dummy_value()

        number = types.intp
        return types.void(left, left_rows, right, right_rows, number, number, out, number, number, number), emit

    return add_outer_block


def row_sums(lanes):
    """Return a function that adds the sum over n in first..last of source[rows[n]] to `lanes` entries of out[m].

    source (rows, N), out (M, N); the entries start at j.
    """

    @intrinsic
    def add_rows_block(typing_context, source, rows, first, last, out, m, j):
        def emit(context, builder, signature, args):
            code = VectorBuilder(context, builder, out, lanes)
            table, numbers, result = (code.array(signature.args[at], args[at]) for at in (0, 1, 4))
            target = code.place(result, args[5], args[6])

            def add(n, totals):
                row = builder.load(builder.gep(numbers.data, [n]))
                return [builder.fadd(code.load(code.place(table, row, args[6])), totals[0])]

            [total] = code.loop(args[2], args[3], 1, [code.load(target)], add)
            code.store(total, target)
            return context.get_dummy_value()

        number = types.intp
        return types.void(source, rows, number, number, out, number, number), emit

    return add_rows_block


def correlations(rows, vectors, lanes):
    """Return a function that adds sum_j a[a_row + j] b[b_row + j + r], entry by entry, to out[out_row + r], r < rows.

    j < count, and the entries are those of `vectors` vectors from i on. A row of b is loaded once for all r.
    """

    @intrinsic
    def add_correlations_block(typing_context, a, a_row, b, b_row, count, out, out_row, i):
        def emit(context, builder, signature, args):
            code = VectorBuilder(context, builder, out, lanes)
            left, right, result = (code.array(signature.args[at], args[at]) for at in (0, 2, 5))

            def load_row(array, row):
                place = code.place(array, row, args[7])
                return [code.load(place, v) for v in range(vectors)]

            def step(j, values):
                totals, window = values[: rows * vectors], values[rows * vectors :]
                factors = load_row(left, builder.add(args[1], j))
                window = window + load_row(right, builder.add(builder.add(args[3], j), constant(rows - 1)))
                pairs = zip(factors * rows, window, totals, strict=True)
                return [code.multiply_add(*values) for values in pairs] + window[vectors:]

            targets = [code.place(result, builder.add(args[6], constant(r)), args[7]) for r in range(rows)]
            places = [(target, v) for target in targets for v in range(vectors)]
            totals = [code.load(*place) for place in places]
            for r in range(rows - 1):
                totals += load_row(right, builder.add(args[3], constant(r)))
            totals = code.loop(constant(0), args[4], 1, totals, step)[: len(places)]
            for total, place in zip(totals, places, strict=True):
                code.store(total, *place)
            return context.get_dummy_value()

        row = types.intp
        return types.void(a, row, b, row, row, out, row, row), emit

    return add_correlations_block
