# SPDX-License-Identifier: Apache-2.0
"""The judge of attention with inputs of the caller's own."""
import warnings

import numpy
import pytest

import cpattn
from test_check import attention, load, make, store


def own_inputs(check, seed=1):
    draw = numpy.random.default_rng(seed).standard_normal
    shapes = {t: check.shape(t) for t in ("q", "k", "v", "do")}
    return {t: store(draw(shape) * 2, check.case["dtype"]) for t, shape in shapes.items()}


@pytest.mark.parametrize("format", ["bshd", "sbhd"])
def test_inputs_of_ones_own(format):
    whole = make(format=format)
    drawn = whole.inputs("numpy")
    given = own_inputs(whole)
    whole.give(**given)
    for mine, all_of_it in zip(whole.inputs("numpy"), given.values()):
        numpy.testing.assert_array_equal(mine, all_of_it)
    if format == "bshd":
        results = attention(whole, *given.values())
        assert whole.verify(**results)
        assert not whole.verify(**attention(whole, *drawn))
        verdict = whole.verify(**attention(whole, *given.values(), scale=1.05))
        assert verdict.diagnosis and "scale" in verdict.diagnosis.text
    whole.give()
    for mine, before in zip(whole.inputs("numpy"), drawn):
        numpy.testing.assert_array_equal(mine, before)
    if format == "bshd":
        assert whole.verify(**attention(whole, *drawn)) and not whole.verify(**results)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_inputs_that_let_zeros_pass_are_told(dtype):
    check = make(dtype)
    given = own_inputs(check)
    usual = {t: x.copy() for t, x in given.items()}
    given["v"][:] = given["v"][:, :1]  # dq and dk are zero, and only their rounding errors are not
    check.give(**given)
    zeros = numpy.zeros_like(given["q"])
    with pytest.warns(UserWarning, match="^dq is judged so loosely that zeros pass: ") as told:
        verdict = check.verify(dq=zeros, out=attention(check, *given.values())["out"])
    assert len(told) == 1 and verdict and "zeros pass, too" in verdict.text
    assert {f.tensor: f.remark for f in verdict.figures} == {"dq": "zeros_pass", "out": ""}
    check.give(**usual)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict = check.verify(**attention(check, *usual.values()))
    assert verdict and "zeros pass" not in verdict.text
    assert {f.remark for f in verdict.figures} == {""}
    assert not check.verify(out=numpy.zeros_like(given["q"]))


def test_the_chunk_in_which_zeros_pass_is_told():
    """The queries of chunk 0 see equal values. Those of chunk 1 do not, and zeros fail there."""
    check = make(sharding="zigzag")
    given = own_inputs(check)
    given["v"][:, :50] = given["v"][:, :1]
    check.give(**given)
    zeros = numpy.zeros_like(given["q"])
    for dq, passes in ((attention(check, *given.values())["dq"], True), (zeros, False)):
        with pytest.warns(UserWarning, match="^dq in chunk 0 is judged so loosely that zeros pass: ") as told:
            assert bool(check.verify(dq=dq)) == passes
        assert len(told) == 1 and "dq passes" not in str(told[0].message)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_large_logits_are_judged_alike_on_every_machine(dtype):
    """A query sees one key then. In bf16 its weight is exact; in fp32 the errors of logits count."""
    check = make(dtype)
    given = own_inputs(check)
    for t in ("q", "k"):
        given[t] = store(load(given[t]) * 1e6, dtype)
    check.give(**given)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        verdict = check.verify(out=numpy.zeros_like(given["q"]))
    assert (bool(verdict), len(told)) == ((True, 1) if dtype == "fp32" else (False, 0)), str(verdict)


def test_what_does_not_fit_in_fp16_is_infinite():
    """64 queries see the only key. Each adds 2000 to elements of dv, and the sum overflows."""
    check = make("fp16", seqlen_q=64, seqlen_kv=1, mask="none")
    given = own_inputs(check)
    given["do"][..., :3] = 2000
    given["do"][..., 3:] = 0.1
    check.give(**given)
    with numpy.errstate(over="ignore"):
        results = attention(check, *check.inputs("numpy"), causal=False)
    assert numpy.isinf(results["dv"][..., :3]).all() and numpy.isfinite(results["dv"][..., 3:]).all()
    verdict = check.verify(**results)
    assert verdict, str(verdict)
    for column, wrong in ((0, -numpy.inf), (3, numpy.inf), (3, results["dv"][0, 0, 0, 3] * 3)):
        changed = {**results, "dv": results["dv"].copy()}
        changed["dv"][0, 0, 0, column] = wrong
        assert not check.verify(**changed)


def test_gradients_that_overflow_in_fp16_have_a_finite_reference():
    """dS overflows in fp16, dq and dk do not. A kernel that keeps dS in fp32 is right."""
    check = make("fp16", seqlen=24)
    given = own_inputs(check)
    given.update(v=given["v"] * numpy.float16(1000), do=given["do"] * numpy.float16(1000))
    given.update(q=given["q"] * numpy.float16(1e-3), k=given["k"] * numpy.float16(1e-3))
    check.give(**given)
    results = attention(check, *check.inputs("numpy"))
    assert all(numpy.isfinite(x).all() for x in results.values())
    verdict = check.verify(**results)
    assert verdict, str(verdict)
    assert not check.verify(**{**results, "dq": results["dq"] * numpy.float16(1.1)})


def test_each_rank_has_its_part_of_given_inputs():
    whole = make(batch=1)
    given = own_inputs(whole)
    results = attention(whole, *given.values())
    case = cpattn.Case(**{**whole.case.fields(), "world_size": "2", "sharding": "zigzag"})
    for rank in range(2):
        check = cpattn.Check(case, rank=rank)
        check.give(**given)
        positions = [p for _, p in check.tokens("q")]
        numpy.testing.assert_array_equal(check.inputs("numpy")[0][0], given["q"][0, positions])
        assert check.verify(**{t: results[t][:, positions] for t in ("out", "dq", "dk", "dv")})


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda g: g.pop("v"), "the case has 4"),
        (lambda g: g.update(q=g["q"][:, 1:]), "should have"),
        (lambda g: g.update(bias=g["q"]), "bias"),
        (lambda g: g["k"].__setitem__((1, 40, 0, 7), 0x7FC0), "k is nan at sequence 1, position 40, head 0, dim 7"),
        (lambda g: g["do"].__setitem__((0, 99, 3, 31), 0xFF80), "do is -inf at sequence 0, position 99, head 3"),
    ],
)
def test_inputs_that_cannot_be_given(change, text):
    check = make()
    given = own_inputs(check)
    change(given)
    with pytest.raises((cpattn.CpattnError, ValueError, TypeError), match=text):
        check.give(**given)


def test_padding_of_given_inputs_may_hold_anything():
    check = make(format="sbhd", lengths_q="100,60")
    given = own_inputs(check)
    for tensor in given.values():
        tensor[60:, 1] = 0x7FC0
    check.give(**given)
    given["q"][59, 1, 0, 0] = 0x7FC0
    with pytest.raises(cpattn.CpattnError, match="q is nan at sequence 1, position 59, head 0, dim 0"):
        check.give(**given)
