# SPDX-License-Identifier: Apache-2.0
"""The judge of collectives and linear layers: right ones pass, faults are named."""
import ctypes

import numpy
import pytest

import cpattn

RANKS = 3


def checks_of(kind, **fields):
    job = cpattn.Job(kind, world_size=RANKS, **fields)
    return [cpattn.JobCheck(job, rank) for rank in range(RANKS)]


@pytest.mark.parametrize("dtype", ["fp32", "int64", "uint8"])
def test_all_reduce(dtype):
    checks = checks_of("collective", operation="all_reduce", count=100, dtype=dtype)
    sends = [check.input("send", "numpy") for check in checks]
    total = sends[0] + sends[1] + sends[2]
    for check, send in zip(checks, sends):
        assert check.tensors["receive"].shape == (100,)
        assert check.verify(send=send, receive=total)
    missing = checks[0].verify(receive=sends[0] + sends[2])
    assert not missing
    assert "rank 1 is missing" in missing.diagnosis.text
    assert missing.figures[0].tensor == "receive"
    assert "collective all_reduce" in str(missing)


def test_untouched_memory_and_blocks():
    checks = checks_of("collective", operation="all_gather", count=50, dtype="int32")
    sends = [check.input("send", "numpy") for check in checks]
    receive = checks[1].empty("receive", "numpy")
    assert "the memory was never written" in checks[1].verify(receive=receive).diagnosis.text
    receive[:] = numpy.concatenate(sends)
    checks[1].insist(receive=receive)
    with pytest.raises(cpattn.VerdictError, match="blocks of ranks 0 and 2 are swapped"):
        checks[1].insist(receive=numpy.concatenate(sends[::-1]))


def test_row_layer():
    checks = checks_of(
        "linear", layer="row", dtype="fp32", tokens=20, in_features=40, out_features=16, training="false"
    )
    x, w = ([check.input(name, "numpy").astype("f8") for check in checks] for name in "xw")
    bias = checks[0].input("b", "numpy")
    y = sum(a @ b.T for a, b in zip(x, w))
    verdicts = [check.verify(y=(y + bias).astype("f4")) for check in checks]
    assert all(verdicts)
    assert len({verdict.digest for verdict in verdicts}) == 1
    wrong = checks[0].verify(y=(y + 3 * bias).astype("f4"))
    assert "bias" in wrong.diagnosis.text
    assert wrong.digest != verdicts[0].digest


def test_a_verdict_names_the_results_that_were_not_judged():
    check = checks_of("linear", layer="row", dtype="fp32", tokens=20, in_features=40, out_features=16)[0]
    verdict = check.verify(y=check.empty("y", "numpy"), x=check.input("x", "numpy"))
    assert verdict.unjudged == ("dx", "dw", "db")
    assert str(verdict).splitlines()[1] == "not judged: dx, dw, db"


def test_strides_of_a_single_row_or_column():
    """The stride of a dimension of size 1 has no meaning. Libraries leave any number there."""
    fields = {"layer": "row", "dtype": "fp32", "in_features": 12, "training": "false", "bias": "false"}
    for tokens, features in ((1, 7), (7, 1)):
        checks = checks_of("linear", tokens=tokens, out_features=features, **fields)
        x, w = ([check.input(name, "numpy").astype("f8") for check in checks] for name in "xw")
        y = numpy.zeros((2 * tokens, features), "f4") if tokens == 1 else numpy.zeros((features, tokens), "f4").T
        y = y[:tokens]
        y[:] = sum(a @ b.T for a, b in zip(x, w))
        assert checks[0].verify(y=y)


def test_a_rank_without_features_has_the_other_side():
    check = checks_of("linear", layer="row", tokens=6, in_features=2, out_features=5)[2]
    shapes = {name: tensor.shape for name, tensor in check.tensors.items()}
    assert shapes["x"] == (6, 0) and shapes["w"] == (5, 0) and shapes["y"] == (6, 5)


def test_what_is_refused():
    check = checks_of("collective", operation="reduce", root=1, count=10)[0]
    assert check.tensors["receive"].bytes == 0
    with pytest.raises(KeyError, match="this job has no y; it has send, receive"):
        check.verify(y=numpy.zeros(10, "f4"))
    with pytest.raises(ValueError, match="shape"):
        check.verify(send=numpy.zeros(9, "f4"))
    with pytest.raises(TypeError, match="fp32"):
        check.verify(send=numpy.zeros(10, "f8"))
    with pytest.raises(ValueError, match="is a result"):
        check.input("receive", "numpy")
    with pytest.raises(ValueError, match="gaps"):
        check.verify(send=numpy.zeros(20, "f4")[::2])
    with pytest.raises(cpattn.CpattnError, match="no tensor to judge"):
        check.verify()
    with pytest.raises(cpattn.CpattnError, match="rank is 3"):
        cpattn.JobCheck(cpattn.Job("collective", world_size=3), 3)
    with pytest.raises(cpattn.CpattnError, match="accepted is collective or linear"):
        cpattn.JobCheck(cpattn.Case())


class Elsewhere:
    """A host tensor that claims to be on a CUDA device."""

    def __init__(self, array, device):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self):
        capsule = self.array.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_int32.from_address(get(capsule, b"dltensor") + 8).value = 2  # kDLCUDA
        ctypes.c_int32.from_address(get(capsule, b"dltensor") + 12).value = self.device
        return capsule


def test_memory_of_a_device(monkeypatch):
    monkeypatch.setattr("cpattn._arrays.stream_of", lambda device: 0)
    check = checks_of("collective", operation="all_reduce", count=10)[0]
    send, receive = check.input("send", "numpy"), check.empty("receive", "numpy")
    with pytest.raises(ValueError, match="several devices: \\[-1, 3\\]"):
        check.verify(send=send, receive=Elsewhere(receive, 3))
    with pytest.raises(cpattn.CpattnError, match="libcpattn-check-cuda|CUDA device 4096"):
        check.verify(receive=Elsewhere(receive, 4096))
    assert "never written" in check.verify(receive=receive).diagnosis.text


def test_a_field_that_was_not_given_is_told():
    job = cpattn.Job("collective", operation="all_reduce", count=10)
    with pytest.raises(cpattn.CpattnError, match="was given no world_size; it was given operation, count"):
        job["world_size"]
