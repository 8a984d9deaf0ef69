# SPDX-License-Identifier: Apache-2.0
"""A pytest plug-in: tests with the cases of a matrix file as parameters.

    def test_my_kernel(cpattn_check):
        q, k, v, do = cpattn_check.inputs("numpy")
        cpattn_check.insist(out=my_kernel(q, k, v))

    pytest --cpattn-matrix cases.yaml -k bf16 -n 4

A test with the fixture `cpattn_case` or `cpattn_check` runs once for each case of the file, under
the id of the case. A failed verdict is reported with its figures and without a traceback. The short
summary and the message in a JUnit report have the diagnosis, the tensors and the rank.

`cpattn_matrix = cases.yaml` in pytest.ini or pyproject.toml sets the matrix of runs without
--cpattn-matrix; its path is relative to the folder of that file. Without a matrix these tests are
skipped. cpattn-submit reads the matrix file.

To test a ring, run `torchrun --nproc-per-node 4 -m pytest ...`: each rank judges its own part.
"""
from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Union

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTraceback

from cpattn import _submit
from cpattn.case import Case, Job
from cpattn.check import Check, Verdict, VerdictError
from cpattn.job_check import JobCheck

# Fields of a case that only a daemon uses.
_OF_DAEMONS = ("verify", "explore_seed")
# Options of pytest, and the options of cpattn-submit with the same value.
_PASSED_ON = {
    "--cpattn-subset": "--subset",
    "--cpattn-shard": "--shard",
    "--cpattn-scale": "--seqlen-scale",
}


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("cpattn", "judged attention")
    group.addoption("--cpattn-matrix", metavar="FILE", help="run tests on the cases of this matrix")
    parser.addini("cpattn_matrix", "the matrix file of every run without --cpattn-matrix", default="")
    group.addoption(
        "--cpattn-filter",
        metavar="FILTER",
        action="append",
        default=[],
        help="only matching cases, as cpattn-submit matrix --filter; may be repeated",
    )
    group.addoption(
        "--cpattn-subset", metavar="NAME", help="only the cases of this subset of the matrix"
    )
    group.addoption(
        "--cpattn-shard", metavar="I/N", help="part I of N, as cpattn-submit matrix --shard"
    )
    group.addoption(
        "--cpattn-scale", metavar="N", help="divide lengths by N, as cpattn-submit --seqlen-scale"
    )
    group.addoption(
        "--cpattn-submit",
        metavar="PROGRAM",
        default=_submit.program() or "cpattn-submit",
        help="the command that reads matrix files [that of the wheel, else cpattn-submit of PATH]",
    )


def _matrix(config: Any) -> str:
    """Returns the path of the matrix file; "": none is given."""
    configured = config.getini("cpattn_matrix")
    beside = config.inipath.parent if config.inipath else config.rootpath
    return config.getoption("--cpattn-matrix") or (str(beside / configured) if configured else "")


def _listed(config: Any, matrix: str) -> list[dict]:
    """Returns the cases of a matrix file, as `cpattn-submit matrix --list --json` prints them."""
    command = [config.getoption("--cpattn-submit"), "matrix", matrix, "--list", "--json"]
    for wanted in config.getoption("--cpattn-filter"):
        command += ["--filter", wanted]
    for option, passed_on in _PASSED_ON.items():
        if config.getoption(option):
            command += [passed_on, config.getoption(option)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise pytest.UsageError(
            f"{command[0]} cannot be run: {error.strerror}; it reads the matrix file, and is a part of "
            "the wheel and of an installed cpattnd; --cpattn-submit names another"
        ) from error
    if done.returncode != 0:
        raise pytest.UsageError(done.stderr.strip() or f"{command[0]} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


_CASES = pytest.StashKey[list]()


def pytest_sessionstart(session: Any) -> None:
    matrix = _matrix(session.config)
    if matrix:
        session.config.stash[_CASES] = _listed(session.config, matrix)


def pytest_generate_tests(metafunc: Any) -> None:
    cases = metafunc.config.stash.get(_CASES, None)
    if "cpattn_case" not in metafunc.fixturenames or cases is None:
        return  # without a matrix the fixture cpattn_case skips the test
    metafunc.parametrize(
        "cpattn_case",
        [c.get("case") or c["job"] for c in cases],
        ids=[c["id"] for c in cases],
        indirect=True,
    )


@pytest.fixture
def cpattn_case(request: Any) -> Case:
    """The Case of this test, or its Job if the matrix has another kind than attention."""
    if not hasattr(request, "param"):
        pytest.skip("no matrix; give --cpattn-matrix FILE, or cpattn_matrix in pytest.ini")
    fields = {k: v for k, v in request.param.items() if k not in _OF_DAEMONS}
    return Job(**fields) if "kind" in fields else Case(**fields)


@pytest.fixture
def cpattn_check(cpattn_case: Case) -> Union[Check, JobCheck]:
    """The Check or JobCheck of this test, for the rank $RANK; rank 0 if it is not set.

    torchrun sets RANK and WORLD_SIZE. A case with another number of ranks than $WORLD_SIZE is
    skipped.
    """
    started, wanted = os.environ.get("WORLD_SIZE"), cpattn_case["world_size"]
    if started is not None and started != wanted:
        pytest.skip(f"the case has {wanted} ranks, and torchrun has started {started}")
    rank = int(os.environ.get("RANK", "0"))
    return JobCheck(cpattn_case, rank) if isinstance(cpattn_case, Job) else Check(cpattn_case, rank)


def _told(verdict: Verdict) -> ReprExceptionInfo:
    """Returns what pytest shows of a failed verdict: its text and a short message. pytest-xdist can
    send this class."""
    wrong = dict.fromkeys(f.tensor for f in verdict.figures if f.broken)
    where = "" if verdict.rank is None else f" on rank {verdict.rank}"
    message = f"{', '.join(wrong)}{where}"
    # The diagnosis comes first, because pytest cuts the line at the width of the terminal.
    message = f"{verdict.diagnosis} ({message})" if verdict.diagnosis else f"{message}: wrong"
    return ReprExceptionInfo(
        reprtraceback=ReprTraceback(reprentries=[], extraline=str(verdict), style="native"),
        reprcrash=ReprFileLocation(path="", lineno=0, message=message),
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    outcome = yield
    if call.excinfo is not None and call.excinfo.errisinstance(VerdictError):
        outcome.get_result().longrepr = _told(call.excinfo.value.verdict)
