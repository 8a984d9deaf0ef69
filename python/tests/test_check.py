# SPDX-License-Identifier: Apache-2.0
"""The judge of attention: a right kernel passes, wrong ones fail."""
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


def attention(check, q, k, v, do, causal=True, scale=1.0, drop=0, wrong_sink=1.0, wrong_bias=1.0):
    """Returns the results of attention on one rank with all tokens, in bshd. The options from
    `scale` on are faults."""
    dtype = check.case["dtype"]
    q, k, v, do = (load(x).transpose(0, 2, 1, 3) for x in (q, k, v, do))
    group = q.shape[1] // k.shape[1]
    keys, values = numpy.repeat(k, group, 1), numpy.repeat(v, group, 1)
    factor = numpy.float32(scale / q.shape[-1] ** 0.5)
    s = q @ keys.transpose(0, 1, 3, 2) * factor
    bias = load(check.input("bias", "numpy")) if check.has("bias") else None
    sink = check.input("sink", "numpy")[None, :, None, None] if check.has("sink") else None
    if bias is not None:
        s = s + bias
    if causal:
        s = numpy.where(numpy.triu(numpy.ones(s.shape[-2:], bool), 1), -numpy.inf, s)
    if drop:
        s[..., :drop] = -numpy.inf
        s[..., :drop, :] = numpy.where(numpy.isfinite(s[..., :drop, :]), s[..., :drop, :], 0)
    top = s.max(-1, keepdims=True)
    p = numpy.exp(s - top)
    total = p.sum(-1, keepdims=True)
    if sink is not None:
        total = total + numpy.exp(sink - top)
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
    results = {"out": out.transpose(0, 2, 1, 3), "lse": lse, **dict(zip(names, bshd))}
    if bias is not None:
        over = tuple(i for i in range(3) if bias.shape[i] == 1)
        dbias = (p * (do @ values.transpose(0, 1, 3, 2) - delta)).sum(over, keepdims=True)
        results["dbias"] = store(dbias * wrong_bias, dtype)
    if sink is not None:
        weight = numpy.exp(sink[..., 0] - lse)
        results["dsink"] = (-weight * delta[..., 0]).sum((0, 2), dtype="f8").astype("f4") * wrong_sink
    if check.has("max_logit"):
        results["max_logit"] = top[..., 0].max((0, 2))
    return results


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


def test_a_verdict_names_the_results_that_were_not_judged():
    check = make(bias="1hss")
    results = attention(check, *check.inputs("numpy"))
    verdict = check.verify(**results)
    assert verdict.unjudged == () and "not judged" not in str(verdict)
    verdict = check.verify(out=results["out"])
    assert verdict and verdict.unjudged == ("lse", "dq", "dk", "dv", "dbias")
    assert repr(verdict).splitlines()[1] == "not judged: lse, dq, dk, dv, dbias"
    check = make(training=False)
    assert check.verify(out=check.expected("out", "numpy")).unjudged == ("lse",)


def test_a_result_that_the_case_lacks_may_be_none():
    check = make(training=False)
    assert check.verify(out=check.expected("out", "numpy"), dq=None)


def test_a_rank_may_have_no_tokens():
    case = cpattn.Case(world_size=4, batch=1, heads=2, head_dim=16, seqlen=1)
    check = cpattn.Check(case, rank=1)
    q = check.inputs("numpy")[0]
    assert q.shape == (1, 0, 2, 16)
    assert check.verify(out=q, lse=numpy.zeros((1, 2, 0), "f4"))


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


def test_a_rank_without_tokens():
    torch = pytest.importorskip("torch")
    case = cpattn.Case(world_size=4, batch=1, heads=2, head_dim=16, seqlen=2, dtype="fp32")
    empty = [r for r in range(4) if not cpattn.Check(case, rank=r).tokens("q")]
    assert empty
    check = cpattn.Check(case, rank=empty[0])
    assert [x.numel() for x in check.inputs("torch")] == [0] * 4
    results = {name: torch.empty(check.shape(name)) for name in ("out", "dq", "dk", "dv")}
    assert check.verify(**results, lse=torch.empty(check.shape("lse")))


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
        (lambda c: c.verify(out=numpy.zeros((2, 100, 4, 32), numpy.float64)), "float64; it should have bf16"),
        (lambda c: c.verify(out=numpy.zeros((2, 100, 4, 32), numpy.float16)), "elements of fp16; it should have bf16"),
        (lambda c: c.verify(out=[1.0]), "out is a list; it should be a tensor"),
        (lambda c: c.verify(dO=None), "dO is no result .did you mean 'dq'|'do'|results are out"),
        (lambda c: c.verify(out=c.expected("out", "numpy"), dq=None), "dq is None; give a tensor"),
        (lambda c: c.verify(max_logit=numpy.zeros(4, "f4")), "max_logit false, so it has no max_logit"),
        (lambda c: make(training=False).verify(dq=numpy.zeros(1)), "training false, so it has no dq"),
        (lambda c: make(training=False, bias="1hss").expected("dbias"), "bias 1hss and training false"),
        (lambda c: c.input("out"), "out is no input; inputs are q, k"),
        (lambda c: c.shape("o"), "o is no tensor"),
        (lambda c: c.tokens("v"), "it is 'q' or 'k'"),
        (lambda c: c.map("out", c.expected("out", "numpy"), tile=0), "tile is 0; it is at least 1"),
        (lambda c: cpattn.Job("collective").smallest(lambda _: True), "a collective cannot be made smaller"),
        (lambda c: cpattn.Case(causal=True), "did you mean 'mask'"),
        (lambda c: c.verify(), "no result to judge"),
        (lambda c: c.verify(q=numpy.zeros(1)), "no result"),
        (lambda c: c.place("q", [100]), "positions 0 to 99"),
        (lambda c: c.place("q", [1, 1]), "rows 0 and 1 are the same token: position 1 of sequence 0"),
        (lambda c: cpattn.Case(seqlen=-1), "-1"),
        (lambda c: cpattn.Case(color="red"), "color"),
        (lambda c: cpattn.Check(c.case, rank=1), "ranks 0 to 0"),
    ],
)
def test_mistakes_are_told(mistake, text):
    with pytest.raises((cpattn.CpattnError, ValueError, TypeError), match=text):
        mistake(make())


def test_a_verdict_on_one_of_several_ranks_names_it():
    case = cpattn.Case(world_size=2, batch=1, heads=2, head_dim=16, seqlen=40)
    check = cpattn.Check(case, rank=1)
    verdict = check.verify(out=check.expected("out", "numpy"))
    assert verdict.rank == 1 and str(verdict).startswith("pass on rank 1: cpattn-submit case")
    assert not check.verify(out=check.inputs("numpy")[0]) and make().verify(
        out=make().expected("out", "numpy")
    ).rank is None


@pytest.mark.parametrize("format", ["bshd", "sbhd", "thd"])
def test_a_map_shows_head_and_tile(format):
    check = make(format=format, **({"lengths_q": "100,100"} if format == "thd" else {}))
    results = {t: check.expected(t, "numpy") for t in ("out", "dk", "lse")}

    def signs(tensor, value):  # of each head of each sequence
        lines = [line.split() for line in check.map(tensor, value, tile=32).splitlines()]
        return ["".join(words[2:]) for words in lines if words[0] == "head"]

    assert signs("out", results["out"]) == ["...."] * 8
    assert signs("dk", results["dk"]) == ["...."] * 4
    assert signs("lse", results["lse"]) == ["...."] * 8
    row = {"bshd": (1, 40), "sbhd": (40, 1), "thd": (140,)}[format]
    results["out"][(*row, 2)] = store(load(results["out"][(*row, 2)]) * 3, "bf16")
    wrong = [(i, line) for i, line in enumerate(signs("out", results["out"])) if line != "...."]
    assert len(wrong) == 1 and wrong[0][0] == 4 + 2 and wrong[0][1].replace(wrong[0][1][1], "x") == ".x.."
    results["lse"][..., -1] = numpy.nan
    assert signs("lse", results["lse"])[-1] == "...#"
    with pytest.raises(TypeError, match="dsink is no result with tokens"):
        check.map("dsink", results["out"])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_map_of_right_results_is_empty(dtype):
    """The first rows of a causal out are larger than the others, and so are their errors."""
    check = make(dtype, seqlen=600)
    results = attention(check, *check.inputs("numpy"))
    assert check.verify(**results)
    for tensor in ("out", "dq", "dk", "dv"):
        lines = [line.split() for line in check.map(tensor, results[tensor], tile=50).splitlines()]
        assert {sign for words in lines if words[0] == "head" for sign in words[2:]} == {"."}, tensor


def test_a_failing_case_is_reduced():
    def fails(case):
        check = cpattn.Check(case)
        q, k, v, do = check.inputs("numpy")
        out = attention(check, q, k, v, do)["out"].copy()
        out[:, 40:, -1] = 0  # the last head, from the 41st token on
        return not check.verify(out=out)

    case = make(seqlen=100, heads=4).case
    assert fails(case)
    small = case.smallest(fails)
    assert fails(small)
    assert (small["heads"], small["batch"], small["seqlen_q"]) == ("1", "1", "41")
    assert case["seqlen_q"] == "100"

    def stops(_case):
        raise KeyError("no kernel")

    with pytest.raises(KeyError, match="no kernel"):
        case.smallest(stops)
    with pytest.raises(ValueError, match="does not fail"):
        case.smallest(lambda _case: False)

    def interrupted(tried):
        if tried["heads"] != "4":
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        case.smallest(interrupted)


def test_dtypes_of_numpy_and_of_text_are_read():
    assert cpattn.Case(dtype=numpy.float16)["dtype"] == "fp16"
    assert cpattn.Case(dtype=numpy.dtype("float32"))["dtype"] == "fp32"
    assert cpattn.Case(dtype="torch.bfloat16")["dtype"] == "bf16"


def test_a_fail_names_its_rules_and_a_result_of_nan_has_no_errors():
    check = make()
    out = attention(check, *check.inputs("numpy"))["out"].copy()
    verdict = check.verify(out=store(load(out) * 1.01, "bf16"))
    assert "FAIL out, chunk 0: breaks rmse, slope" in verdict.text
    verdict = check.verify(out=numpy.full_like(out, 0x7FC0))
    assert "breaks nonfinite; 25600 of 25600 elements are not finite; first" in verdict.text


def test_nan_and_lost_rows_are_told_with_their_place():
    check = make()
    out = attention(check, *check.inputs("numpy"))["out"].copy()
    out[1, 50, 2, 7] = 0x7FC0
    verdict = check.verify(out=out)
    assert not verdict and verdict.figures[0].nonfinite == 1
    assert verdict.figures[0].first_bad == {"sequence": 1, "position": 50, "head": 2, "dim": 7}
    assert "such rows may see no key, or may not have been written" in str(verdict.diagnosis), str(verdict)


BIASES = ["111s", "11ss", "1h1s", "1hss", "b11s", "b1ss", "bh1s", "bhss"]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("format", ["bshd", "sbhd"])
def test_gradients_of_bias_sinks_and_largest_logits(bias, format):
    check = make(seqlen=60, bias=bias, softmax="learnable", max_logit=True)
    results = attention(check, *check.inputs("numpy"))
    verdict = check.verify(**results)
    assert verdict, str(verdict)
    assert {"dbias", "dsink", "max_logit"} <= {f.tensor for f in verdict.figures}
    if format == "sbhd":
        check = make(seqlen=60, bias=bias, softmax="learnable", max_logit=True, format="sbhd")
        assert check.verify(dbias=results["dbias"], dsink=results["dsink"])
    for name, factor in (("dbias", 1.2), ("dsink", 1.02)):
        wrong = load(results[name]) * numpy.float32(factor)
        assert not check.verify(**{name: store(wrong, "bf16") if name == "dbias" else wrong})
    assert not check.verify(max_logit=results["max_logit"] + numpy.float32(1e-3))


@pytest.mark.parametrize("bias", BIASES)
def test_sums_are_over_all_queries_or_over_the_own(bias):
    fields = dict(seqlen=60, bias=bias, softmax="learnable", max_logit=True)
    whole = make("fp32", **fields)
    results = attention(whole, *whole.inputs("numpy"))
    case = cpattn.Case(**{**whole.case.fields(), "world_size": "2"})
    own = [cpattn.Check(case, rank=r, sums="own") for r in range(2)]
    all_of_it = [cpattn.Check(case, rank=r) for r in range(2)]
    parts = [check.expected("dsink", "numpy") for check in own]
    assert all_of_it[0].verify(dsink=parts[0] + parts[1])
    assert not all_of_it[0].verify(dsink=parts[0])
    assert own[0].verify(dsink=parts[0]) and not own[0].verify(dsink=parts[0] + parts[1])
    gradients = {t: own[0].expected(t, "numpy") for t in ("dk", "dbias")}  # dk needs all queries
    assert own[0].verify(dsink=parts[0], **gradients)
    most = numpy.maximum(*(check.expected("max_logit", "numpy") for check in own))
    assert all_of_it[1].verify(max_logit=most) and whole.verify(max_logit=most)
    rows = slice(None) if bias[2] == "1" else slice(30, 60)
    assert all_of_it[1].verify(dbias=results["dbias"][:, :, rows])
    if bias[2] == "1":
        parts = [check.expected("dbias", "numpy") for check in own]
        assert all_of_it[0].verify(dbias=parts[0] + parts[1])
        assert not all_of_it[0].verify(dbias=parts[0])


def test_named_tokens_have_their_rows_of_the_bias():
    positions = [40, 3, 4, 5, 59, 17]
    for bias in ("bhss", "1hss"):
        whole = make(batch=1, seqlen=60, bias=bias)
        results = attention(whole, *whole.inputs("numpy"))
        some = make(batch=1, seqlen=60, bias=bias)
        some.place("q", positions)
        wanted = results["dbias"][0][:, positions]
        wanted = wanted if bias == "bhss" else wanted[None]
        bias_rows = whole.input("bias", "numpy")[0][:, positions]
        numpy.testing.assert_array_equal(some.input("bias", "numpy").reshape(bias_rows.shape), bias_rows)
        shape = some.shape("dbias")
        assert some.verify(dbias=wanted.reshape(shape)), bias
        assert not some.verify(dbias=wanted.reshape(shape)[..., ::-1, :].copy()), bias


@pytest.mark.parametrize(
    "wrong, said",
    [({"scale": 1.05}, "scale"), ({"causal": False}, "mask"), ({"wrong_bias": 2.0}, "dbias")],
)
def test_a_fail_names_the_mistake(wrong, said):
    check = make(bias="1hss")
    verdict = check.verify(**attention(check, *check.inputs("numpy"), **wrong))
    assert verdict.diagnosis is not None and said in str(verdict.diagnosis), str(verdict)
    assert verdict.diagnosis.explained > 0.9
    assert f"diagnosis: {verdict.diagnosis}" in str(verdict)
    right = check.verify(**attention(check, *check.inputs("numpy")))
    assert right.diagnosis is None and "diagnosis" not in str(right)


class Misread:
    """A check whose kernel reads another bias."""

    def __init__(self, check, change):
        self.case, self.has, self._check, self._change = check.case, check.has, check, change

    def input(self, tensor, library):
        given = self._check.input(tensor, library)
        return self._change(given) if tensor == "bias" else given


@pytest.mark.parametrize(
    "bias, change, said",
    [
        ("bhss", lambda x: x.swapaxes(2, 3), "the bias is transposed: queries read it as keys"),
        ("1hss", lambda x: numpy.repeat(x[:, :1], x.shape[1], 1), "the bias of every head is that of the first"),
        ("b1ss", lambda x: numpy.roll(x, -1, 0), "the bias is that of the next sequence"),
    ],
)
def test_a_misread_bias_is_named(bias, change, said):
    check = make(bias=bias, batch=3)
    verdict = check.verify(**attention(Misread(check, change), *check.inputs("numpy")))
    assert verdict.diagnosis and verdict.diagnosis.text == said, str(verdict)


def test_a_bias_before_the_softcap_is_named():
    check = make(bias="11ss", softcap=5, mask="none", batch=1, kv_heads=4)
    q, k, v, _ = (load(x).transpose(0, 2, 1, 3) for x in check.inputs("numpy"))
    logits = q @ k.transpose(0, 1, 3, 2) / 32**0.5
    p = numpy.exp(5 * numpy.tanh((logits + load(check.input("bias", "numpy"))) / 5))
    verdict = check.verify(out=store((p @ v / p.sum(-1, keepdims=True)).transpose(0, 2, 1, 3), "bf16"))
    assert verdict.diagnosis and verdict.diagnosis.text == "the bias is added before the softcap", str(verdict)


@pytest.mark.parametrize("bias", ["11ss", "1hss", "b1ss", "bhss"])
def test_a_transposed_gradient_of_the_bias_is_named(bias):
    check = make(bias=bias)
    turned = check.expected("dbias", "numpy").swapaxes(2, 3).copy()
    verdict = check.verify(dbias=turned)
    assert verdict.diagnosis and verdict.diagnosis.text == "dbias is transposed: its rows are keys", str(verdict)


def test_a_gradient_of_the_bias_that_is_overwritten_is_named():
    check = make(bias="11ss", kv_heads=4)
    last = [x[1:, :, 3:] for x in check.inputs("numpy")]
    verdict = check.verify(dbias=attention(check, *last)["dbias"])
    assert verdict.diagnosis and "the last sequence and head only" in verdict.diagnosis.text, str(verdict)


def test_a_mask_that_the_case_does_not_have_is_named():
    check = make(mask="none")
    verdict = check.verify(**attention(check, *check.inputs("numpy"), causal=True))
    assert "a causal mask is applied, which the case does not have" in str(verdict.diagnosis), str(verdict)


def test_a_fail_of_named_tokens_names_the_mistake():
    whole = make(batch=1)
    out = attention(whole, *whole.inputs("numpy"), scale=1.05)["out"]
    positions = list(range(99, 0, -3))
    striped = make(batch=1)
    striped.place("q", positions)
    verdict = striped.verify(out=out[0, positions])
    assert verdict.diagnosis and "scale" in verdict.diagnosis.text, str(verdict)
    assert verdict.diagnosis.tensor == "out"


def test_pytorch_tensors_are_judged_where_they_lie():
    torch = pytest.importorskip("torch")
    check = make()
    tensors = check.inputs("torch")
    for name, tensor in zip(("q", "k", "v", "do"), tensors):
        assert tensor.dtype == torch.bfloat16
        assert cpattn._arrays.view(name, tensor, "bf16").address == tensor.data_ptr()
    bits = [t.view(torch.int16).numpy().view(numpy.uint16) for t in tensors]
    out = torch.from_numpy(attention(check, *bits)["out"].view(numpy.int16)).view(torch.bfloat16)
    assert check.verify(out=out.requires_grad_())
    assert not check.verify(out=-out)


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_mistake_of_one_sequence_is_told_of_it_alone(seed):
    check = cpattn.Check(
        cpattn.Case(world_size=1, sharding="contiguous", batch=2, heads=1, head_dim=32, seqlen=64, seed=seed)
    )
    dq = load(check.expected("dq", "numpy"))
    dq[1] *= 3
    verdict = check.verify(dq=store(dq, "bf16"))
    assert not verdict
    text = verdict.diagnosis.text
    assert text.startswith("in sequence 1, not in sequence 0: dq is ") and text.endswith("what it should be"), text


def test_errors_of_results_that_are_all_zero_are_numbers():
    check = cpattn.Check(cpattn.Case(world_size=1, sharding="contiguous", heads=1, head_dim=8, seqlen=9, window_left=0))
    dq = check.expected("dq", "numpy")
    verdict = check.verify(dq=dq)
    assert verdict and "nan" not in str(verdict)
    assert verdict.figures[0].times_twin is None
