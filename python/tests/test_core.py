# SPDX-License-Identifier: Apache-2.0
"""Masks and attention with nothing but Python's standard library."""

from __future__ import annotations

import copy
import math
import pickle
import random
import threading
from array import array

import bauta
from bauta import Mask, _core
from support import all_raise, raises, seed

CONSTRUCTORS = {
    "all": Mask.all(3, 5),
    "none": Mask.none(3, 5),
    "causal": Mask.causal(3, 5),
    "window": Mask.window(3, 5, window=2),
    "prefix": Mask.prefix(3, 5, prefix=4),
    "sinks": Mask.sinks(3, 5, sinks=1),
    "lengths": Mask.lengths([2, 1], 3),
    "documents": Mask.documents([3, 0, 2], [1, 2, 3]),
    "pack": Mask.pack([Mask.causal(1, 3), Mask.all(2), Mask.window(3, window=2)]),
    "rows": Mask.rows(lambda query: [(query, query + 2)], 3, 5),
    "parse": Mask.parse("documents(2, 3) & causal | sinks(1)", 5),
    "future": ~Mask.causal(4),
    "empty": Mask.all(0, 0),
    "no keys": Mask.all(4, 0),
}


def pairs_of(mask):
    return {
        (query, key)
        for query in range(mask.queries)
        for lo, hi in mask.row(query)
        for key in range(lo, hi)
    }


def random_mask(rng, queries, keys):
    """A mask of random spans, or of random documents."""
    if rng.random() < 0.3 and queries == keys:
        lengths = []
        while sum(lengths) < queries:
            lengths.append(rng.randint(1, queries - sum(lengths)))
        return Mask.from_lengths(lengths, causal=rng.random() < 0.5)

    def row(query):
        cuts = sorted(rng.sample(range(keys + 1), 2 * rng.randint(0, (keys + 1) // 2)))
        return list(zip(cuts[::2], cuts[1::2]))

    return Mask.rows(row, queries, keys)


def test_masks_have_the_pairs_that_their_definition_gives():
    n, m = 3, 5
    position = lambda i: i + m - n
    want = {
        "all": lambda i, j: True,
        "none": lambda i, j: False,
        "causal": lambda i, j: j <= position(i),
        "window": lambda i, j: position(i) - 2 < j <= position(i),
        "prefix": lambda i, j: j < 4 or j <= position(i),
        "sinks": lambda i, j: j < 1 and j <= position(i),
        "rows": lambda i, j: i <= j < i + 2,
    }
    for name, visible in want.items():
        pairs = {(i, j) for i in range(n) for j in range(m) if visible(i, j)}
        assert pairs_of(CONSTRUCTORS[name]) == pairs, name


def test_questions_agree_with_each_other():
    for name, mask in CONSTRUCTORS.items():
        pairs = pairs_of(mask)
        assert mask.shape == (mask.queries, mask.keys)
        assert mask.pairs == len(pairs), name
        lines = mask.text().split("\n") if mask.queries else []
        assert len(lines) == mask.queries
        for i in range(mask.queries):
            for j in range(mask.keys):
                assert mask.visible(i, j) == ((i, j) in pairs), (name, i, j)
                assert (lines[i][j] == "#") == ((i, j) in pairs), (name, i, j)
        assert mask.is_causal() == (mask.first_future_pair() is None)


def test_algebra_is_that_of_sets():
    number = seed()
    rng = random.Random(number)
    for _ in range(200):
        queries, keys = rng.randint(0, 9), rng.randint(1, 9)
        a, b = random_mask(rng, queries, keys), random_mask(rng, queries, keys)
        every = pairs_of(Mask.all(queries, keys))
        assert pairs_of(a & b) == pairs_of(a) & pairs_of(b)
        assert pairs_of(a | b) == pairs_of(a) | pairs_of(b)
        assert pairs_of(~a) == every - pairs_of(a)
        assert ~(a & b) == ~a | ~b and hash(~(a & b)) == hash(~a | ~b)
        assert (a == b) == (pairs_of(a) == pairs_of(b))
        lower = random_mask(rng, keys, rng.randint(1, 9))
        through = {
            (i, k) for i, j in pairs_of(a) for jj, k in pairs_of(lower) if j == jj
        }
        assert pairs_of(a.compose(lower)) == through


def test_slices_are_the_pairs_inside():
    number = seed()
    rng = random.Random(number)
    for _ in range(200):
        mask = random_mask(rng, rng.randint(1, 9), rng.randint(1, 9))
        r = sorted(rng.choices(range(mask.queries + 1), k=2))
        c = sorted(rng.choices(range(mask.keys + 1), k=2))
        part = mask[r[0] : r[1], c[0] : c[1]]
        inside = {
            (i - r[0], j - c[0])
            for i, j in pairs_of(mask)
            if r[0] <= i < r[1] and c[0] <= j < c[1]
        }
        assert part.shape == (r[1] - r[0], c[1] - c[0])
        assert pairs_of(part) == inside
    assert Mask.causal(5)[-1:] == Mask.causal(1, 5)
    with raises(TypeError, "slices"):
        Mask.causal(5)[1]
    with raises(bauta.ArgumentError, "step"):
        Mask.causal(5)[::2]


def test_slices_and_pickles_keep_origins_of_documents():
    mask = Mask.from_lengths([3, 2, 4], causal=True)
    for part in (mask, pickle.loads(pickle.dumps(mask)), mask[:, :], mask[3:, 3:]):
        rows = [part.origin(i) for i in range(part.queries)]
        assert rows == [0, 0, 0, 3, 3, 5, 5, 5, 5] if part.queries == 9 else [0, 0, 2]
    padded = Mask.lengths([2, 3], 4)
    assert [pickle.loads(pickle.dumps(padded)).origin(i) for i in (0, 4)] == [0, 4]


def test_masks_are_immutable_hashable_and_picklable():
    for name, mask in CONSTRUCTORS.items():
        again = pickle.loads(pickle.dumps(mask))
        assert again == mask and hash(again) == hash(mask), name
        assert copy.copy(mask) is mask and copy.deepcopy(mask) is mask
        assert mask in {again}
        with raises(AttributeError, "immutable"):
            mask.queries_ = 3
        with raises(AttributeError, "immutable"):
            del mask._handle
    assert Mask.causal(3) != Mask.causal(4) and Mask.causal(3) != "causal"
    with raises(TypeError, "constructor"):
        Mask()


def test_a_damaged_pickle_is_an_error():
    queries, keys = 3, 4
    start, spans, origins = _core.mask_spans(Mask.causal(queries, keys)._handle)
    broken = [
        (start[:-8], spans, origins),
        (start[8:] + start[:8], spans, origins),
        (start, spans[:-8], origins),
        (start, spans, origins[:-4]),
        (start, array("I", [4, 1, 0, 3, 0, 4]).tobytes(), origins),
        (start, array("I", [0, 9, 0, 3, 0, 4]).tobytes(), origins),
    ]
    for parts in broken:
        with raises(bauta.ArgumentError):
            _core.mask_from_spans(queries, keys, *parts)
    # Origins that are not those of documents are dropped.
    for bad in ([1, 1, 1], [2, 1, 0], [9, 9, 9]):
        handle = _core.mask_from_spans(
            queries, keys, start, spans, array("I", bad).tobytes()
        )
        assert Mask._wrap(handle) == Mask.causal(queries, keys)


def test_cu_seqlens_are_bands_of_documents():
    number = seed()
    rng = random.Random(number)
    for _ in range(100):
        cu_q, cu_k = [0], [0]
        for _ in range(rng.randint(0, 4)):
            cu_q.append(cu_q[-1] + rng.randint(0, 5))
            cu_k.append(cu_k[-1] + rng.randint(0, 5))
        if rng.random() < 0.5:
            cu_k = cu_q
        left, right = rng.randint(-1, 4), rng.randint(-1, 4)
        causal = rng.random() < 0.3
        mask = Mask.from_cu_seqlens(
            cu_q, cu_k, causal=causal, window_size=(left, right)
        )
        want = set()
        for d in range(len(cu_q) - 1):
            n, m = cu_q[d + 1] - cu_q[d], cu_k[d + 1] - cu_k[d]
            for i in range(n):
                for j in range(m):
                    ahead = j - (i + m - n)
                    limit = 0 if causal else right
                    if (left < 0 or ahead >= -left) and (limit < 0 or ahead <= limit):
                        want.add((cu_q[d] + i, cu_k[d] + j))
        assert pairs_of(mask) == want, (cu_q, cu_k, left, right, causal)


def test_pictures_show_every_pair():
    for mask in CONSTRUCTORS.values():
        html = mask._repr_html_()
        assert f"{mask.pairs} pairs" in html
    assert Mask.causal(3)._repr_html_().count("<rect") == 4
    mask = Mask.window(1000, 700, window=90)
    shares = _core.mask_density(mask._handle, 64, 64)
    rows = [sum(1 for i in range(1000) if i * 64 // 1000 == r) for r in range(64)]
    columns = [sum(1 for j in range(700) if j * 64 // 700 == c) for c in range(64)]
    total = sum(
        share * rows[at // 64] * columns[at % 64] for at, share in enumerate(shares)
    )
    assert abs(total - mask.pairs) < 1e-6 * mask.pairs
    assert max(shares) == 1.0 and "svg" in mask._repr_html_()
    assert str(mask) == repr(mask) == f"<bauta.Mask 1000 x 700, {mask.pairs} pairs>"


def test_bad_masks_are_errors_with_a_sentence():
    cases = [
        (lambda: Mask.causal(-1), ValueError, "queries is -1"),
        (lambda: Mask.causal(2, -3), ValueError, "keys is -3"),
        (lambda: Mask.causal("3"), TypeError, ""),
        (lambda: Mask.causal(2.0), TypeError, ""),
        (lambda: Mask.causal(1 << 31), ValueError, "2147483648"),
        (lambda: Mask.causal(1 << 80), OverflowError, ""),
        (lambda: Mask.window(3, window=-1), ValueError, "window is -1"),
        (lambda: Mask.documents([1, -2]), ValueError, "a length is -2"),
        (lambda: Mask.documents([1, 2], [3]), ValueError, "2"),
        (lambda: Mask.lengths([5], 3), ValueError, "5"),
        (lambda: Mask.pack([Mask.all(2), None]), TypeError, "NoneType"),
        (lambda: Mask.rows(lambda q: [(0, 9)], 2), ValueError, "9"),
        (lambda: Mask.rows(lambda q: [(1, 1)], 2), ValueError, ""),
        (lambda: Mask.rows(lambda q: [(1, 2), (0, 1)], 2), ValueError, ""),
        (lambda: Mask.rows(lambda q: [(-1, 1)], 2), ValueError, "lo is -1"),
        (lambda: Mask.rows(lambda q: 1 // 0, 2), ZeroDivisionError, ""),
        (lambda: Mask.parse("causal &", 3), ValueError, "column"),
        (lambda: Mask.parse("windw(2)", 3), ValueError, "did you mean 'window'"),
        (lambda: Mask.parse("causal\0", 3), ValueError, "null"),
        (lambda: Mask.parse(3, 3), TypeError, ""),
        (lambda: Mask.causal(3) & Mask.causal(4), ValueError, "4"),
        (lambda: Mask.causal(3) & 1, TypeError, "unsupported operand"),
        (lambda: Mask.causal(3) | None, TypeError, "unsupported operand"),
        (lambda: Mask.causal(3).compose(Mask.causal(4)), ValueError, "4"),
        (lambda: Mask.causal(3).compose(3), TypeError, "int"),
        (lambda: Mask.causal(3, 4).reach(2), ValueError, ""),
        (lambda: Mask.causal(3).reach(-1), ValueError, "layers is -1"),
        (lambda: Mask.causal(3).visible(3, 0), IndexError, "query 3"),
        (lambda: Mask.causal(3).visible(0, 3), IndexError, "key 3"),
        (lambda: Mask.causal(3).visible(-1, 0), ValueError, "query is -1"),
        (lambda: Mask.causal(3).row(3), IndexError, "query 3"),
        (lambda: Mask.causal(3).origin(3), IndexError, "query 3"),
        (lambda: Mask.from_cu_seqlens([]), ValueError, "begin with 0"),
        (lambda: Mask.from_cu_seqlens([1, 2]), ValueError, "begin with 0"),
        (lambda: Mask.from_cu_seqlens([0, 2, 1]), ValueError, "decreases"),
        (lambda: Mask.from_cu_seqlens([0, 2], [0, 1, 2]), ValueError, "sequences"),
        (lambda: _core.mask_shape(None), ValueError, ""),
        (lambda: bauta.set_num_threads(-1), ValueError, "-1"),
    ]
    all_raise(cases)


def test_every_status_has_an_exception():
    kinds = {bauta._errors.error_of(s, "text").__class__ for s in range(1, 8)}
    assert len(kinds) == 7 and all(issubclass(kind, bauta.Error) for kind in kinds)
    assert issubclass(bauta.ArgumentError, ValueError)
    assert issubclass(bauta.OutOfMemoryError, MemoryError)
    assert issubclass(bauta.FileError, OSError)
    assert bauta._errors.error_of(99, "later").args == ("later",)


# ---- attention over memoryviews ----------------------------------------------


def view(numbers, *shape):
    return memoryview(array("f", numbers)).cast("B").cast("f", list(shape))


def forward(mask, q, k, v, heads, dim, value_dim):
    """One sequence; q, k, v are lists in the order (heads, tokens, dim)."""
    queries, keys = mask.shape
    out = view([9.0] * heads * queries * value_dim, 1, heads, queries, value_dim)
    arguments = (
        view(q, 1, heads, queries, dim),
        view(k, 1, heads, keys, dim),
        view(v, 1, heads, keys, value_dim),
        out,
    )
    _core.attention_forward((mask._handle,), 0.0, *arguments, None)
    return out.cast("B").cast("f").tolist()


def naive(mask, q, k, v, heads, dim, value_dim):
    queries, keys = mask.shape
    out = []
    for h in range(heads):
        for i in range(queries):
            row = q[(h * queries + i) * dim :][:dim]
            scores = {
                j: sum(a * b for a, b in zip(row, k[(h * keys + j) * dim :][:dim]))
                / math.sqrt(dim)
                for lo, hi in mask.row(i)
                for j in range(lo, hi)
            }
            top = max(scores.values(), default=0.0)
            weights = {j: math.exp(s - top) for j, s in scores.items()}
            total = sum(weights.values()) or 1.0
            for c in range(value_dim):
                out.append(
                    sum(
                        w * v[(h * keys + j) * value_dim + c]
                        for j, w in weights.items()
                    )
                    / total
                )
    return out


def random_problem(rng):
    queries, keys = rng.randint(1, 12), rng.randint(1, 12)
    heads, dim, value_dim = rng.randint(1, 3), rng.randint(1, 9), rng.randint(1, 9)
    numbers = lambda count: array("f", (rng.gauss(0, 1) for _ in range(count))).tolist()
    q = numbers(heads * queries * dim)
    k = numbers(heads * keys * dim)
    v = numbers(heads * keys * value_dim)
    return random_mask(rng, queries, keys), q, k, v, heads, dim, value_dim


def test_attention_is_the_formula():
    rng = random.Random(seed())
    for _ in range(50):
        problem = random_problem(rng)
        for got, want in zip(forward(*problem), naive(*problem)):
            # Products of up to 9 terms of magnitude 5, in float32.
            assert abs(got - want) < 1e-5, (got, want)


def test_hidden_values_change_no_bit():
    rng = random.Random(seed())
    for _ in range(50):
        mask, q, k, v, heads, dim, value_dim = random_problem(rng)
        seen = {j for _, j in pairs_of(mask)}
        before = forward(mask, q, k, v, heads, dim, value_dim)
        for j in set(range(mask.keys)) - seen:
            for h in range(heads):
                at = h * mask.keys + j
                k[at * dim : (at + 1) * dim] = [math.nan] * dim
                v[at * value_dim : (at + 1) * value_dim] = [math.inf] * value_dim
        assert forward(mask, q, k, v, heads, dim, value_dim) == before


def test_bad_buffers_are_errors():
    mask = Mask.causal(2)
    good = lambda: view([0.0] * 4, 1, 1, 2, 2)
    doubles = memoryview(array("d", [0.0] * 4)).cast("B").cast("d", [1, 1, 2, 2])
    cases = [
        (doubles, TypeError, "not float32"),
        (view([0.0] * 4, 2, 2), ValueError, "2 axes, not 4"),
        (view([0.0] * 2, 1, 1, 1, 2), ValueError, "out is (1, 1, 2, 2)"),
        (view([0.0] * 8, 1, 2, 2, 2), ValueError, "out is (1, 1, 2, 2)"),
        (view([0.0] * 8, 2, 1, 2, 2), ValueError, "(1, 1, 2, 2), not (2, 1, 2, 2)"),
        (b"text", TypeError, "not float32"),
        (None, TypeError, ""),
        (3, TypeError, ""),
        ((0, (1, 1, 2), (4, 4, 2)), TypeError, ""),
    ]
    for bad, kind, text in cases:
        with raises(kind, text):
            _core.attention_forward(
                (mask._handle,), 0.0, bad, good(), good(), good(), None
            )
    readonly = memoryview(bytes(16)).cast("f", [1, 1, 2, 2])
    with raises(BufferError):
        _core.attention_forward(
            (mask._handle,), 0.0, good(), good(), good(), readonly, None
        )
    with raises(ValueError, "the mask is 3 x 3"):
        _core.attention_forward(
            (Mask.all(3)._handle,), 0.0, good(), good(), good(), good(), None
        )
    with raises(ValueError, "there are 0 masks"):
        _core.attention_forward((), 0.0, good(), good(), good(), good(), None)
    with raises(ValueError, "finite"):
        _core.attention_forward(
            (mask._handle,), math.nan, good(), good(), good(), good(), None
        )
    assert forward(mask, [0.0] * 4, [0.0] * 4, [1.0] * 4, 1, 2, 2) == [1.0] * 4


def test_threads_call_at_once():
    rng = random.Random(seed())
    problems = [random_problem(rng) for _ in range(20)]
    want = [forward(*problem) for problem in problems]
    wrong = []

    def work(start):
        for turn in range(60):
            at = (start + turn) % len(problems)
            if forward(*problems[at]) != want[at]:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_number_of_threads_changes_no_bit():
    rng = random.Random(seed())
    problem = random_problem(rng)
    want = forward(*problem)
    try:
        for threads in (1, 2, 3):
            bauta.set_num_threads(threads)
            assert bauta.get_num_threads() == threads
            assert forward(*problem) == want
    finally:
        bauta.set_num_threads(0)
    assert bauta.isa() in ("c", "avx2", "avx512")


def test_calls_leak_no_memory():
    import resource

    problem = random_problem(random.Random(1))
    grown = []
    for _ in range(3):
        for _ in range(1000):
            forward(*problem)
            pickle.loads(pickle.dumps(Mask.causal(50) & Mask.window(50, window=3)))
            try:
                Mask.parse("windw", 3)
            except ValueError:
                pass
        grown.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    # In KiB. A leak of one mask in each turn would be more than 1 MiB.
    assert grown[-1] - grown[0] < 512, grown
