# SPDX-License-Identifier: Apache-2.0
"""The client and a daemon with real ranks. CPATTN_DAEMON is the path of cpattnd."""
import os
import subprocess
import threading
import time

import pytest

import cpattn

DAEMON = os.environ.get("CPATTN_DAEMON")
pytestmark = pytest.mark.skipif(not DAEMON, reason="CPATTN_DAEMON names no daemon")
SMALL = {"heads": 2, "head_dim": 16, "seqlen": 40}


class Daemon:
    def __init__(self, folder):
        self.socket = str(folder / "socket")
        self.start()

    def start(self):
        command = [DAEMON, "--socket", self.socket, "--backend", "cpu", "--guest", "mine=/bin/true"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while True:
            try:
                cpattn.Client(self.socket).close()
                return
            except cpattn.CpattnError:
                assert self.process.poll() is None
                time.sleep(0.05)

    def end(self):
        self.process.terminate()
        assert self.process.wait() == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    made = Daemon(tmp_path_factory.mktemp("daemon"))
    yield made
    made.end()


@pytest.fixture
def client(daemon):
    with cpattn.Client(daemon.socket) as made:
        yield made


def test_a_case_has_a_verdict_and_figures(client):
    answer = client.run(cpattn.Case(world_size=2, **SMALL))
    assert answer and answer.verdict == "pass" and answer.status == cpattn.Status.OK
    assert [rank.rank for rank in answer.ranks] == [0, 1]
    assert {f.tensor for _, f in answer.figures} == {"out", "lse", "dq", "dk", "dv"}
    assert answer.seconds["run"] > 0 and answer.ranks[0].seconds["forward"] > 0
    assert answer.ranks[0].own_operations > 0 and answer.ranks[0].provider_operations == 0
    assert answer.digest == client.run({"world_size": 2, **SMALL}).digest
    assert str(answer).startswith("pass ")


def test_the_daemon_says_what_check_says(client):
    answer = client.run({"world_size": 2, "dtype": "fp16", "seed": 7, **SMALL})
    for rank in answer.ranks:
        check = cpattn.Check(answer.case, rank=rank.rank)
        results = {t: check.expected(t, "numpy") for t in ("out", "lse", "dq", "dk", "dv")}
        expected = {(f.tensor, f.chunk): f for f in check.verify(**results).figures}
        for f in rank.figures:
            like = expected[f.tensor, f.chunk]
            assert (f.elements, f.worst_row_limit) == (like.elements, like.worst_row_limit)


def test_a_job_of_another_kind(client):
    job = cpattn.Job("collective", operation="all_gather", world_size=2, count=100, dtype="bf16")
    assert job["operation"] == "all_gather"
    assert str(job) == "collective all_gather w2 count=100 dtype=bf16"
    assert job.fields()["count"] == "100"
    answer = client.run(job)
    assert answer.verdict == "pass"
    assert {f.tensor for f in answer.ranks[0].figures} == {"receive", "send", "guards"}
    with pytest.raises(cpattn.CpattnError, match="root is 2 with 2 ranks"):
        cpattn.Job("collective", operation="reduce", root=2)
    answer = client.run(cpattn.Job("no_such"))
    assert "kind is 'no_such'; accepted is collective" in answer.text
    with pytest.raises(cpattn.CpattnError):
        cpattn.Check(job)


def test_many_cases_come_as_they_are_answered(client):
    cases = [{"world_size": w, "seed": s, **SMALL} for w in (2, 4) for s in range(6)]
    answers = list(client.answers(cases))
    assert len(answers) == 12 and all(answers)
    assert {a.case["seed"] for a in answers} == {str(s) for s in range(6)}


def test_a_loop_leaves_the_answers_to_other_requests(client):
    mine = [client.submit({"world_size": 2, "seed": 100 + s, **SMALL}) for s in range(4)]
    assert all(request.wait(30) for request in mine)
    assert mine[2].answer()
    assert len(list(client.answers([{"world_size": 2, "seed": 1, **SMALL}]))) == 1
    assert [client.wait_any(0) for _ in range(4)] == [mine[0], mine[1], mine[3], None]


def test_two_loops_have_their_own_answers(client):
    loops = [client.answers([{"world_size": 2, "seed": s, **SMALL} for s in seeds]) for seeds in ((1, 2, 3), (4, 5, 6))]
    got = [[next(loop).case["seed"] for loop in loops] for _ in range(3)]
    assert [sorted(seeds) for seeds in zip(*got)] == [["1", "2", "3"], ["4", "5", "6"]]
    assert [next(loop, None) for loop in loops] == [None, None]


def test_requests_are_given_once_each(client):
    requests = [client.submit({"world_size": 2, "seed": s, **SMALL}) for s in range(3)]
    got = []
    while request := client.wait_any(30):
        got.append(request)
        assert request.answered and request.wait(0) and request.answer()
    assert sorted(r.id for r in got) == sorted(r.id for r in requests)
    assert requests[0].answer() is requests[0].answer()


def test_a_request_can_be_cancelled(client):
    request = client.submit({"world_size": 2, "seqlen": 20000})
    assert not request.answered and not request.wait(0.01)
    request.cancel()
    answer = request.answer()
    assert not answer and answer.verdict is None and answer.status == cpattn.Status.CANCELLED
    other = client.submit({"world_size": 2, "seqlen": 20000})
    while True:
        try:
            client.cancel(other.id)
            break
        except cpattn.CpattnError as error:
            assert error.status == cpattn.Status.NOT_FOUND  # the daemon does not have it yet
    assert other.answer().status == cpattn.Status.CANCELLED
    with pytest.raises(cpattn.CpattnError, match="hexadecimal"):
        client.cancel("nonsense")


def test_time_limits(client):
    answer = client.submit({"world_size": 2, "seqlen": 20000}, run_timeout=0.05).answer()
    assert answer.status == cpattn.Status.DEADLINE_EXCEEDED and answer.verdict is None
    assert answer.text


@pytest.mark.parametrize("timeout", [-1, 1e30, float("nan"), float("inf"), "x", None])
def test_a_wrong_time_limit_is_named(client, timeout):
    with pytest.raises((TypeError, ValueError), match=f"timeout is {timeout!r}; it should be ".replace("+", ".")):
        client.submit(SMALL, timeout=timeout)
    with pytest.raises((TypeError, ValueError), match="run_timeout is "):
        client.submit(SMALL, run_timeout=timeout)
    with pytest.raises((TypeError, ValueError), match="timeout is "):
        client.describe(timeout=timeout)


def test_a_wait_may_be_long(client):
    request = client.submit(SMALL)
    with pytest.raises(ValueError, match="timeout is -1; it should be 0 or more seconds"):
        request.wait(-1)
    assert request.wait(float("inf")) and request.wait(1e30)


@pytest.mark.parametrize("device", ["x", 2**32, 0.5])
def test_a_wrong_device_is_named(client, device):
    with pytest.raises((TypeError, ValueError), match=f"device is {device!r}; it should be "):
        client.drain(device)
    with pytest.raises((TypeError, ValueError), match=f"host is {device!r}; it should be "):
        client.drain(0, host=device)


def test_a_refusal_is_an_answer(client):
    answer = client.run({"world_size": 64, "comm": "p2p", "seqlen": 16777216, "batch": 64})
    assert not answer and answer.status == cpattn.Status.RESOURCE_EXHAUSTED and answer.text


def test_the_daemon_describes_itself(client, daemon):
    description, status = client.describe(), client.status()
    assert description.backend == "cpu" and description.world_size_max >= 2
    assert description.gpus == () and description.timeout_default > 0
    assert description.providers == ()
    (guest,) = description.guests
    assert guest["name"] == "mine" and set(guest["world_sizes"]) >= {1, 2} and not guest["supports"]
    assert client.run({"world_size": 2, **SMALL})
    later = client.status()
    assert later.passed > status.passed or later.passed > 0
    assert later.uptime >= status.uptime and not later.draining
    assert 0 < later.loop_lag_p99 <= later.loop_lag_max
    assert any(pool["world_size"] == 2 and pool["state"] for pool in later.pools)
    assert client.socket == daemon.socket


WHOLE = {"sharding": "contiguous", "kv_heads": 1, "dtype": "bf16", **SMALL}


def drawn(library, **more):
    """Returns the check of one rank with all tokens, and its inputs by name."""
    check = cpattn.Check(cpattn.Case(world_size=1, **{**WHOLE, **more}))
    named = dict(zip(("q", "k", "v", "do"), check.inputs(library)))
    for name in ("bias", "sink"):
        if check.has(name):
            named[name] = check.input(name, library)
    return check, named


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"format": "sbhd", "dtype": "fp16"},
        {"dtype": "fp32", "bias": "1h1s", "softmax": "learnable", "max_logit": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_attention_of_own_tensors(client, library, fields):
    pytest.importorskip(library)
    check, inputs = drawn(library, **fields)
    case = cpattn.Case(world_size=2, **{**WHOLE, **fields})
    answer, results = client.attend(case, **inputs)
    assert answer and answer.status == cpattn.Status.OK
    shapes = client.shapes(case)
    assert set(shapes) == set(inputs) | set(results)
    assert all(tuple(t.shape) == shapes[n] for n, t in {**inputs, **results}.items())
    assert all(type(t) is type(inputs["q"]) for t in results.values())
    check.insist(**results)
    results["out"][0, 1] = results["out"][1, 0]
    assert not check.verify(**results)


def test_attention_of_own_tensors_forward_alone(client):
    _, inputs = drawn("numpy")
    del inputs["do"]
    answer, results = client.attend({"world_size": 2, "training": False, **WHOLE}, **inputs)
    assert answer and set(results) == {"out", "lse"}


def test_own_tensors_that_do_not_fit(client):
    _, inputs = drawn("numpy")
    case = cpattn.Case(world_size=2, **WHOLE)
    with pytest.raises(ValueError, match=r"k has the shape \(2, 39, 1, 16\); the case's is"):
        client.attend(case, **{**inputs, "k": inputs["k"][:, :-1].copy()})
    with pytest.raises(ValueError, match="v is not contiguous"):
        client.attend(case, **{**inputs, "v": inputs["v"].repeat(2, axis=3)[..., ::2]})
    with pytest.raises(TypeError, match="q has elements of"):
        client.attend(case, **{**inputs, "q": inputs["q"].astype("float32")})
    with pytest.raises(ValueError, match="the case has no sink"):
        client.attend(case, sink=inputs["q"], **inputs)
    with pytest.raises(TypeError, match="x is no input; inputs are q, k, v, do, bias, sink"):
        client.attend(case, x=inputs["q"], **inputs)
    answer, results = client.attend(case, q=inputs["q"], k=inputs["k"], v=inputs["v"])
    assert answer.status == cpattn.Status.INVALID_ARGUMENT and "do" in answer.text and results == {}


def test_a_loop_that_is_left_cancels_the_rest(client):
    cases = [{"world_size": 2, "seed": 1, **SMALL}, {"world_size": 2, "seqlen": 20000}]
    for answer in client.answers(cases):
        assert answer
        break
    deadline = time.monotonic() + 60
    while (status := client.status()).running + status.queued:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.wait_any(0) is None


def test_answers_to_a_loop_that_is_left_are_not_given_to_others(client):
    left = client.answers([{"world_size": 2, "seed": s, **SMALL} for s in range(3)])
    assert next(left)
    assert len(list(client.answers([{"world_size": 2, "seed": 9, **SMALL}]))) == 1
    mine = client.submit({"world_size": 2, "seed": 10, **SMALL})
    left.close()
    assert client.wait_any(30) is mine and client.wait_any(0) is None


def test_a_loop_lives_through_a_daemon_that_is_killed(tmp_path):
    daemon = Daemon(tmp_path)
    try:
        with cpattn.Client(daemon.socket) as client:
            cases = [{"world_size": 2, "seed": s, "seqlen": 500} for s in range(8)]
            answers = client.answers(cases, tries=5)
            got = [next(answers)]
            daemon.kill()
            threading.Timer(0.3, daemon.start).start()
            got += list(answers)
        assert len(got) == 8 and all(got), [str(a) for a in got]
    finally:
        daemon.end()


def test_without_a_daemon_it_is_said_how_to_start_one(tmp_path):
    with pytest.raises(cpattn.CpattnError, match="start it with") as raised:
        cpattn.Client(tmp_path / "absent")
    assert raised.value.status == cpattn.Status.UNAVAILABLE


def test_a_name_that_is_not_utf8_is_in_the_message(tmp_path):
    with pytest.raises(cpattn.CpattnError, match="absent") as raised:
        cpattn.Client(os.fsencode(tmp_path) + b"/\xfcabsent")
    assert raised.value.status == cpattn.Status.UNAVAILABLE


def test_events_tell_what_happened(client):
    client.run(cpattn.Case(world_size=2, seed=3, **SMALL))
    *_, last = client.watch(kinds=["finished"], recent=5, timeout=0)
    assert last.kind == "finished" and last.verdict == "pass" and last.code == cpattn.Status.OK
    assert last.world_size == 2 and len(last.id) == 32 and last.seconds["run"] > 0
    kinds = {event.kind for event in client.watch(recent=1024, timeout=0)}
    assert {"admitted", "started", "finished", "pool"} <= kinds
    with pytest.raises(ValueError):
        next(client.watch(kinds=["nonsense"]))
