# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments: the package refuses them before it calls C. The error names the argument, the
value and what is accepted."""
import os
import subprocess
import sys

import pytest

import cpattn

CASE = cpattn.Case(heads=2, head_dim=16, seqlen=40, world_size=2)
JOB = cpattn.Job("collective", world_size=2, count=8)
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: cpattn.Check(3), TypeError, "case is 3; it should be a Case"),
        (lambda: cpattn.JobCheck("all_reduce"), TypeError, "job is 'all_reduce'; it should be a Job"),
        (lambda: cpattn.Check(CASE, "x"), TypeError, "rank is 'x'; it should be a whole number"),
        (lambda: cpattn.JobCheck(JOB, 0.5), TypeError, "rank is 0.5; it should be a whole number"),
        (lambda: cpattn.Check(CASE, 2**32), ValueError, "rank is 4294967296; it should be from -2147483648 to"),
        (lambda: CASE[3], TypeError, "a field is 3; it should be the name of a field, as text"),
        (lambda: cpattn.Job(3), TypeError, "kind is 3; it should be a kind of job, as text"),
        (lambda: cpattn.Check(CASE).place("q", [1], [1, 2]), ValueError, "1 positions and 2 sequences; each"),
        (lambda: cpattn.Client(in_flight="x"), TypeError, "in_flight is 'x'; it should be a whole number"),
        (lambda: cpattn.Client(connect_timeout="x"), TypeError, "connect_timeout is 'x'; it should be a number of"),
        (lambda: cpattn.Client(grace=-1), ValueError, "grace is -1; it should be from 0 to 86400 seconds"),
        (lambda: cpattn.Client(patience=NAN), ValueError, "patience is nan; it should be from 0 to 86400 seconds"),
    ],
)
def test_arguments_are_named(call, error, text):
    with pytest.raises(error) as told:
        call()
    assert text in str(told.value)


class Unconnected(cpattn.Client):
    """A client without a connection: its calls refuse the arguments before they send anything."""

    def __init__(self):
        self._library, self._handle = None, None


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda c: c.run(3), TypeError, "case is 3; it should be a Case, a Job or a dict of fields"),
        (lambda c: c.cancel(3), TypeError, "request_id is 3; it should be the id of a request, as text"),
        (lambda c: next(c.watch("pol")), ValueError, "a kind is 'pol'; it should be one of admitted, started, "),
        (lambda c: next(c.watch([3])), ValueError, "a kind is 3; it should be one of admitted, started, "),
    ],
)
def test_arguments_of_a_client_are_named(call, error, text):
    with pytest.raises(error) as told:
        call(Unconnected())
    assert text in str(told.value)


def python(statement, **environment):
    """Runs a statement in another process. Returns the last line of its stderr, or ""."""
    done = subprocess.run(
        [sys.executable, "-c", statement], env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    )
    return done.stderr.strip().rpartition("\n")[2]


def test_a_folder_without_the_libraries_is_named(tmp_path):
    said = python("import cpattn; cpattn.Case()", CPATTN_LIBRARY_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    if not said:
        pytest.skip("the libraries are installed")
    assert said.endswith(f"in CPATTN_LIBRARY_PATH, which is {tmp_path} and has none")


def test_a_missing_package_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('it is not here')\n")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    statement = "import cpattn; cpattn.Check(cpattn.Case(seqlen=8)).inputs"
    said = python(f"{statement}('torch')", PYTHONPATH=path)
    assert said.endswith("torch cannot be imported: it is not here; install it, or pass library='numpy'")
    said = python(f"{statement}(device='cuda')", PYTHONPATH=path)
    assert said.endswith("torch cannot be imported: it is not here; install it")
