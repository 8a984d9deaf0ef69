# SPDX-License-Identifier: Apache-2.0
"""The package against the libraries: a right kernel passes, wrong ones are refused."""
import numpy
import pytest

import cpattn


def bits_to_float(x):
    return (x.astype(numpy.uint32) << 16).view(numpy.float32)


def float_to_bits(x):
    x = numpy.ascontiguousarray(x, dtype=numpy.float32).view(numpy.uint32)
    return ((x + 0x7FFF + ((x >> 16) & 1)) >> 16).astype(numpy.uint16)


def load(x):
    return bits_to_float(x) if x.dtype == numpy.uint16 else x.astype(numpy.float32)


def store(x, dtype):
    return float_to_bits(x) if dtype == "bf16" else x.astype({"fp16": "f2", "fp32": "f4"}[dtype])


def attention(check, q, k, v, do, causal=True, scale=1.0, drop=0):
    """Plain attention of one rank that holds everything, bshd, with its backward."""
    dtype = check.case["dtype"]
    q, k, v, do = (load(x).transpose(0, 2, 1, 3) for x in (q, k, v, do))
    group = q.shape[1] // k.shape[1]
    keys, values = numpy.repeat(k, group, 1), numpy.repeat(v, group, 1)
    factor = numpy.float32(scale / q.shape[-1] ** 0.5)
    s = q @ keys.transpose(0, 1, 3, 2) * factor
    if causal:
        s = numpy.where(numpy.triu(numpy.ones(s.shape[-2:], bool), 1), -numpy.inf, s)
    if drop:
        s[..., :drop] = -numpy.inf
        s[..., :drop, :] = numpy.where(numpy.isfinite(s[..., :drop, :]), s[..., :drop, :], 0)
    top = s.max(-1, keepdims=True)
    p = numpy.exp(s - top)
    total = p.sum(-1, keepdims=True)
    lse = (top + numpy.log(total))[..., 0]
    out = store((p @ values) / total, dtype)
    p /= total
    delta = (do * load(out)).sum(-1, keepdims=True)
    ds = p * (do @ values.transpose(0, 1, 3, 2) - delta)
    dq = ds @ keys * factor
    dk = ds.transpose(0, 1, 3, 2) @ q * factor
    dv = p.transpose(0, 1, 3, 2) @ do
    shape = (k.shape[0], k.shape[1], group, *k.shape[2:])
    dk, dv = dk.reshape(shape).sum(2), dv.reshape(shape).sum(2)
    bshd = [x.transpose(0, 2, 1, 3) for x in (store(dq, dtype), store(dk, dtype), store(dv, dtype))]
    names = ("dq", "dk", "dv")
    return {"out": out.transpose(0, 2, 1, 3), "lse": lse, **dict(zip(names, bshd))}


def make(dtype="bf16", **fields):
    case = cpattn.Case(
        **{
            "world_size": 1,
            "batch": 2,
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 32,
            "seqlen": 100,
            "sharding": "contiguous",
            "dtype": dtype,
            **fields,
        }
    )
    return cpattn.Check(case)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_a_right_kernel_passes(dtype):
    check = make(dtype)
    verdict = check.verify(**attention(check, *check.inputs("numpy")))
    assert verdict, str(verdict)
    assert {f.tensor for f in verdict.figures} == {"out", "lse", "dq", "dk", "dv"}


@pytest.mark.parametrize("wrong", [{"scale": 1.05}, {"causal": False}, {"drop": 3}])
def test_a_wrong_kernel_is_refused(wrong):
    check = make()
    verdict = check.verify(**attention(check, *check.inputs("numpy"), **wrong))
    assert not verdict
    assert any(f.broken for f in verdict.figures)
    assert "FAIL" in str(verdict)


def test_results_can_be_judged_one_by_one():
    check = make()
    results = attention(check, *check.inputs("numpy"))
    for name, value in results.items():
        assert check.verify(**{name: value})
    wrong = store(load(results["dk"]) * 1.01, "bf16")
    verdict = check.verify(dk=wrong)
    assert not verdict and "slope" in verdict.figures[0].broken


def test_the_reference_passes_before_its_own_judge():
    check = make("fp16", seqlen=70)
    tensors = ("out", "lse", "dq", "dk", "dv")
    assert check.verify(**{t: check.expected(t, "numpy") for t in tensors})


def test_any_dealing_of_tokens_gives_the_rows_of_the_whole():
    whole = make(batch=1)
    q, k, v, do = whole.inputs("numpy")
    results = attention(whole, q, k, v, do)
    striped = make(batch=1)
    positions = list(range(1, 100, 3))
    striped.place("q", positions)
    striped.place("k", positions)
    for mine, all_of_it in zip(striped.inputs("numpy"), (q, k, v, do)):
        numpy.testing.assert_array_equal(mine, all_of_it[0, positions])
    rows = {t: results[t][0, positions] for t in ("out", "dq", "dk", "dv")}
    assert striped.verify(**rows, lse=results["lse"][0][:, positions])
    rows["out"] = rows["out"][::-1].copy()
    assert not striped.verify(**rows)


def test_ranks_hold_what_the_sharding_says():
    case = cpattn.Case(world_size=2, batch=1, heads=2, head_dim=16, seqlen=40, sharding="zigzag")
    tokens = [cpattn.Check(case, rank=r).tokens("q") for r in range(2)]
    assert [p for _, p in tokens[0]] == [*range(10), *range(30, 40)]
    assert [p for _, p in tokens[1]] == [*range(10, 30)]


def test_strides_are_followed():
    check = make()
    results = attention(check, *check.inputs("numpy"))
    results["out"] = numpy.asfortranarray(results["out"].transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0)
    with pytest.raises(ValueError, match="last dimension"):
        check.verify(out=results["out"].copy(order="F"))
    headed = numpy.ascontiguousarray(results["dq"].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    assert headed.strides != results["dq"].copy().strides
    assert check.verify(dq=headed)


@pytest.mark.parametrize(
    "mistake, text",
    [
        (lambda c: c.verify(out=numpy.zeros((2, 100, 4, 31), numpy.uint16)), "should have"),
        (lambda c: c.verify(out=numpy.zeros((2, 100, 4, 32), numpy.float64)), "64 bits"),
        (lambda c: c.verify(), "no result to judge"),
        (lambda c: c.verify(q=numpy.zeros(1)), "no result"),
        (lambda c: c.place("q", [100]), "positions 0 to 99"),
        (lambda c: c.place("q", [1, 1]), "same token"),
        (lambda c: cpattn.Case(seqlen=-1), "-1"),
        (lambda c: cpattn.Case(color="red"), "color"),
        (lambda c: cpattn.Check(c.case, rank=1), "ranks 0 to 0"),
    ],
)
def test_mistakes_are_told(mistake, text):
    with pytest.raises((cpattn.CpattnError, ValueError, TypeError), match=text):
        mistake(make())


def test_nan_and_lost_rows_are_told_with_their_place():
    check = make()
    out = attention(check, *check.inputs("numpy"))["out"].copy()
    out[1, 50, 2, 7] = 0x7FC0
    verdict = check.verify(out=out)
    assert not verdict and verdict.figures[0].nonfinite == 1
    assert verdict.figures[0].first_bad == {"sequence": 1, "position": 50, "head": 2, "dim": 7}
