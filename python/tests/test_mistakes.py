# SPDX-License-Identifier: Apache-2.0
"""A ring of the kind that users write, with one fault at a time: each fault fails and is named. The
ring without a fault passes, with forward and reverse order of the steps and with the roundings of
real kernels."""
import random

import numpy
import pytest

import cpattn
from test_check import load, store


def rounded(x, dtype):
    return load(store(x, dtype))


def cut(x):  # to bf16
    return (numpy.ascontiguousarray(x, "f4").view("u4") >> 16).astype("u2")


class Ring:
    """All ranks of a ring in one process; tensors are [tokens, heads, dim] in fp32."""

    def __init__(self, **fields):
        self.case = cpattn.Case(**{"batch": 1, "heads": 4, "head_dim": 32, "seqlen": 96, "format": "thd", **fields})
        self.dtype, self.size = self.case["dtype"], int(self.case["world_size"])
        self.checks = [cpattn.Check(self.case, rank) for rank in range(self.size)]
        self.scale = numpy.float32(int(self.case["head_dim_qk"]) ** -0.5)
        self.at = [numpy.array(check.tokens("k"), dtype=int).reshape(-1, 2) for check in self.checks]
        inputs = [[numpy.nan_to_num(load(x)) for x in check.inputs("numpy")] for check in self.checks]
        self.q, self.k, self.v, self.do = zip(*inputs)
        self.sink = self.checks[0].input("sink", "numpy") if self.checks[0].has("sink") else None
        self.group = self.q[0].shape[1] // self.k[0].shape[1]

    def wide(self, x):  # [heads, tokens, dim]
        return numpy.repeat(x, self.group, 1).transpose(1, 0, 2)

    def logits(self, rank, k, owner, backward, wrong):
        query, key = self.at[rank], self.at[owner]
        far = key[None, :, 1] - query[:, None, 1]
        same = key[None, :, 0] == query[:, None, 0]
        if wrong == "packed sequences see each other":
            same = numpy.ones_like(same)
        if wrong == "positions go on":  # of queries, in the packed tensor
            starts = numpy.cumsum([0, *map(int, str(self.case["lengths_q"]).split(","))])
            far = far - starts[query[:, None, 0]]
        seen = same & (far <= (1 if wrong == "mask" or wrong == "mask backward" and backward else 0))
        if wrong == "open tiles":
            seen = same & (key[None, :, 1] // 16 <= query[:, None, 1] // 16)
        left = int(self.case["window_left"])
        if left >= 0 and not (wrong == "window of other ranks" and owner != rank):
            seen &= far >= -left - (wrong == "window backward" and backward)
        if wrong == "a key" or wrong == "a key backward" and backward:
            seen &= key[None, :, 1] != 30
        q = self.q[rank].transpose(1, 0, 2)
        if wrong == "scaled q rounded":
            q = rounded(q * self.scale * 1.4427, self.dtype) / (self.scale * 1.4427)
        s = q @ k.transpose(0, 2, 1) * self.scale * (1.05 if wrong == "scale of other ranks" and owner != rank else 1)
        if wrong == "logits rounded":
            s = rounded(s, "bf16")
        return numpy.where(seen, s, -numpy.inf).astype("f4")

    def owner(self, rank, step, wrong, which):
        owner = (rank - step) % self.size
        stale = wrong == f"stale {which}" or wrong == "stale keys and values"
        return (rank - step + 1) % self.size if stale and step == self.size - 1 else owner

    def forward(self, rank, wrong, backwards):
        tokens, heads = self.q[rank].shape[:2]
        lse, out = numpy.full((heads, tokens), -numpy.inf, "f4"), numpy.zeros((heads, tokens, self.v[0].shape[2]), "f4")
        steps = range(self.size)[:: -1 if backwards else 1]
        sink = self.sink if self.sink is None or wrong != "sink scaled" else self.sink * self.scale
        for step in steps:
            k = self.wide(self.k[self.owner(rank, step, wrong, "keys")])
            v = self.wide(self.v[self.owner(rank, step, wrong, "values")])
            owner = (rank - step) % self.size
            if wrong == "a slot twice" and step == self.size - 1:  # with its places
                owner = (rank - step + 1) % self.size
                k, v = self.wide(self.k[owner]), self.wide(self.v[owner])
            s = self.logits(rank, k, owner, False, wrong)
            if sink is not None and (step == steps[0] or wrong == "sink in each step"):
                lse = numpy.logaddexp(lse, sink[:, None])
            top = s.max(2, initial=-numpy.inf)
            p = numpy.exp(s - numpy.where(numpy.isinf(top), 0, top)[..., None])
            with numpy.errstate(divide="ignore"):
                total = (rounded(p, self.dtype) if wrong == "rounded weights summed" else p).sum(2)
                part = numpy.where(numpy.isinf(top), -numpy.inf, top + numpy.log(total))
            o = rounded(p, self.dtype) @ v / numpy.maximum(total, 1e-30)[..., None]
            new = numpy.logaddexp(lse, part)
            fix = numpy.where(numpy.isinf(new), 0, new)
            weight = numpy.exp(part - fix)
            if wrong == "partial results merged without weights":
                weight = numpy.full_like(weight, 1 / self.size)
            out = out * numpy.exp(lse - fix)[..., None] + o * weight[..., None]
            lse = new
        return out, lse

    def results(self, wrong="", backwards=False):
        found = [{} for _ in range(self.size)]
        for r in range(self.size):
            for name, shape in (("dk", self.k[r].shape), ("dv", self.v[r].shape)):
                found[r][name] = numpy.zeros(shape, "f4")
        for rank in range(self.size):
            out, lse = self.forward(rank, wrong, backwards)
            do, mine = self.do[rank].transpose(1, 0, 2), found[rank]
            delta = (do * rounded(out, self.dtype)).sum(-1) * (0.8 if wrong == "delta" else 1)
            dq = numpy.zeros(self.q[rank].transpose(1, 0, 2).shape, "f4")
            if wrong == "delta with a factor by head":
                delta = delta * numpy.array([0, 0.1, 0.2, 0.3], "f4")[:, None]
            used = rounded(lse, "bf16") if wrong == "lse backward rounded" else lse
            for step in range(self.size):
                owner = (rank - step) % self.size
                k, v = self.wide(self.k[owner]), self.wide(self.v[owner])
                s = self.logits(rank, k, owner, True, wrong)
                if wrong == "lse of each step backward":
                    used = numpy.logaddexp.reduce(s, 2, initial=-1e30)
                p = numpy.exp(s - used[..., None])
                ds = rounded(p * (do @ v.transpose(0, 2, 1) - delta[..., None]), self.dtype)
                dq += 0 if wrong == "dq of a step" and step else ds @ k * self.scale
                home = (owner + 1) % self.size if wrong == "gradients one hop short" and step else owner
                dk = ds.transpose(0, 2, 1) @ self.q[rank].transpose(1, 0, 2) * self.scale
                dv = rounded(p, self.dtype).transpose(0, 2, 1) @ do
                for name, part in (("dk", dk), ("dv", dv)):
                    part = part.transpose(1, 0, 2).reshape(*self.k[owner].shape[:2], self.group, part.shape[2])
                    part = part[:, :, 1:2] if wrong == "one query head" else part
                    found[home][name] += part.mean(2) if wrong == "heads averaged" else part.sum(2)
            mine.update(out=out.transpose(1, 0, 2), dq=dq.transpose(1, 0, 2), lse=lse)
            self.misplace(rank, mine, wrong)
        return found

    def misplace(self, rank, mine, wrong):
        """Changes out, dq and lse of a rank."""
        heads, half = mine["out"].shape[1], len(mine["out"]) // 2
        if wrong == "heads exchanged":
            mine["out"] = mine["out"][:, [h % 3 * (heads // 3) + h // 3 for h in range(heads)]]
        if wrong == "chunks exchanged" and rank == 1:
            mine["out"] = numpy.concatenate([mine["out"][half:], mine["out"][:half]])
        if wrong == "no last sequence":
            last = self.at[rank][:, 0] == int(self.case["batch"]) - 1
            mine["out"][last], mine["dq"][last], mine["lse"][:, last] = 0, 0, -numpy.inf

    def verdicts(self, results, wrong=""):
        for check, mine in zip(self.checks, results):
            arrays = {t: numpy.ascontiguousarray(x) if t == "lse" else store(x, self.dtype) for t, x in mine.items()}
            if wrong == "cut off":
                arrays["dv"] = cut(mine["dv"])
            yield check.verify(**arrays)


WINDOW, SINK = {"window_left": 17}, {"softmax": "learnable"}
PACKED = {"batch": 3, "seqlen": 96, "lengths_q": "96,60,84"}
MISTAKES = {
    "mask": ({}, "the mask admits one key too many"),
    "mask backward": ({}, "in the backward pass the mask admits one key too many"),
    "window of other ranks": (WINDOW, "the window is ignored on its left in the keys of other ranks"),
    "window backward": (WINDOW, "in the backward pass the window is one key wider on the left"),
    "a key": ({}, "one key is missing from the softmax: position 30"),
    "a key backward": ({}, "is missing from dq: position 30|dv is zero"),
    "scaled q rounded": ({}, "Q is rounded to bf16 after it is multiplied by the scale and log2(e)"),
    "scale of other ranks": ({}, "the softmax scale of keys of other ranks is 1.0"),
    "logits rounded": ({}, "the logits are rounded to bf16"),
    "rounded weights summed": ({}, "rounded to bf16 before they are added up to the denominator"),
    "stale keys and values": ({}, "(the rows of rank 0 attend a stale slot)"),
    "a slot twice": ({}, "are in the softmax twice, those of rank"),
    "stale values": ({}, "values (not the keys)"),
    "sink scaled": (SINK, "the sink is multiplied by the scale of the softmax"),
    "sink in each step": (SINK, "the sink is in the denominator 3 times: once for each ring step"),
    "partial results merged without weights": ({}, "merged with fixed weights|it is averaged over the ranks|wrong weights"),
    "delta": ({}, "delta = rowsum(dO * O) is 0.8 times|0.79|0.80"),
    "lse backward rounded": ({}, "the backward pass uses an LSE that is rounded to bf16"),
    "lse of each step backward": ({}, "each ring step of the backward pass uses the LSE of its own keys"),
    "dq of a step": ({}, "missing from dq|only the keys of rank"),
    "gradients one hop short": ({}, "the contribution|has the contributions to the keys of rank"),
    "heads averaged": ({"kv_heads": 2}, "the query heads of a key head: they are averaged"),
    "packed sequences see each other": (PACKED, "keys of other packed sequences are visible"),
    "positions go on": (PACKED, "the positions of a packed sequence continue those of the sequence before"),
    "no last sequence": (PACKED, "rows of sequence 2, the last one; their LSE is -infinity"),
    "open tiles": ({}, "the tiles at the diagonal are not masked: a query sees its whole tile of 16"),
    "one query head": ({"heads": 8, "kv_heads": 2}, "has only the contribution of query head 1 of each group"),
    "heads exchanged": ({"heads": 6}, "out of head h is that of head h % 3 * 2 + h / 3, of 6 heads"),
    "chunks exchanged": ({}, "the rows of out of the two chunks of rank 1 are exchanged"),
    "cut off": ({"seqlen": 384}, "dv is cut off to the dtype instead of rounded"),
}


@pytest.mark.parametrize("wrong", MISTAKES)
def test_a_mistake_is_named(wrong):
    fields, words = MISTAKES[wrong]
    ring = Ring(world_size=3, **fields)
    assert all(ring.verdicts(ring.results()))
    failed = [verdict for verdict in ring.verdicts(ring.results(wrong), wrong) if not verdict]
    said = [verdict.diagnosis.text for verdict in failed if verdict.diagnosis]
    assert any(word in text for word in words.split("|") for text in said), (said, str(failed))


def test_a_mistake_that_may_only_be_like_a_known_one_is_named_with_doubt():
    """One factor of delta explains most of the error, and leaves far more than rounding."""
    ring = Ring(world_size=1, head_dim=64, seqlen=200)
    (verdict,) = ring.verdicts(ring.results("delta with a factor by head"))
    assert verdict.diagnosis.text.startswith("perhaps delta = rowsum(dO * O) is 0."), str(verdict)


def test_rounded_weights_that_are_summed_show_in_lse_alone():
    """The ring merges its partial results with such an LSE, and only LSE itself fails."""
    ring = Ring(world_size=3)
    found = list(ring.verdicts(ring.results("rounded weights summed")))
    assert not any(found)
    assert {f.tensor for verdict in found for f in verdict.figures if f.broken} == {"lse"}


@pytest.mark.parametrize("seed", range(40))
def test_right_rings_pass(seed):
    drawn = random.Random(seed)
    kv_heads = drawn.choice([1, 2])
    batch, tokens = drawn.choice([1, 3]), drawn.choice([1, 2, 17, 64, 130])
    ring = Ring(
        world_size=drawn.choice([1, 2, 3, 4]),
        dtype=drawn.choice(["bf16", "fp16", "fp32"]),
        kv_heads=kv_heads,
        heads=kv_heads * drawn.choice([1, 2]),
        head_dim=drawn.choice([1, 8, 32, 80]),
        batch=batch,
        seqlen=tokens,
        lengths_q=[drawn.randint(0, tokens) for _ in range(batch - 1)] + [tokens],
        window_left=drawn.choice([-1, tokens // 3]),
        softmax=drawn.choice(["vanilla", "learnable"]),
        inputs=drawn.choice(["sharp", "te"]),
        seed=seed,
    )
    for verdict in ring.verdicts(ring.results(backwards=drawn.random() < 0.5)):
        assert verdict, str(verdict)
