#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package and its pytest plug-in, with the libraries of this build. Prints TAP; skipped
# without numpy or pytest.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
# shellcheck source=tests/support/python.sh
. "$top_srcdir/tests/support/python.sh"
python_needs 'import numpy, pytest' 'numpy or no pytest'
python_libraries check client
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
LD_LIBRARY_PATH=$top_builddir/client/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
CPATTN_DAEMON=$top_builddir/cpattnd
PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
export CPATTN_DAEMON LD_LIBRARY_PATH PYTEST_DISABLE_PLUGIN_AUTOLOAD

run() { # ARGUMENTS...
    (cd "$scratch" && python3 -m pytest -q -p no:cacheprovider "$@" >"$scratch/out" 2>&1)
    echo $?
}

tap_is "the tests of the package pass" "$(run -rs "$top_srcdir/python/tests")" 0
sed "s/^/# /" "$scratch/out" | tail -n 20
# "SKIPPED [2] FILE:LINE: REASON", once for each place.
sed -n 's/^SKIPPED \[[0-9]*\] //p' "$scratch/out" >"$scratch/skipped"
while read -r place reason; do
    place=${place##*/}
    tap_skip "${place%:}" "$reason"
done <"$scratch/skipped"

cat >"$scratch/test_kernel.py" <<'PY'
def results(check):
    return {t: check.expected(t, "numpy") for t in ("out", "dq", "dk", "dv")}

def test_right(cpattn_check):
    cpattn_check.insist(**results(cpattn_check))

def test_wrong(cpattn_check):
    wrong = results(cpattn_check)
    wrong["dk"] = wrong["dk"][:, ::-1].copy()
    cpattn_check.insist(**wrong)
PY
plugin="-p cpattn.pytest_plugin --cpattn-submit $top_builddir/cpattn-submit"
# shellcheck disable=SC2086
status=$(run $plugin --cpattn-matrix "$top_srcdir/cases/demonstration.yaml" --cpattn-filter world_size=2 \
    --cpattn-scale 16 test_kernel.py)
tap_is "a failing kernel fails the run" "$status" 1
tap_has "the cases of a matrix are tests" "$(tail -n 1 "$scratch/out")" "8 failed, 8 passed"
tap_has "a test has the id of its case" "$(cat "$scratch/out")" "test_wrong[cp_1_0/bf16/w2]"
tap_has "a failure shows its figures" "$(cat "$scratch/out")" "FAIL dk, chunk 0:"
tap_is "a failure has no traceback" "$(grep -c 'VerdictError(' "$scratch/out")" 0
tap_has "the short summary has the tensor and the rank" "$(grep '^FAILED' "$scratch/out")" " - dk on rank 0: "
cat >"$scratch/test_zeros.py" <<'PY'
def test_zeros(cpattn_check):
    out, dq = (check.expected(t, "numpy") * 0 for check in [cpattn_check] for t in ("out", "dq"))
    cpattn_check.insist(out=out, dq=dq)
PY
# shellcheck disable=SC2086
status=$(run $plugin --cpattn-matrix "$top_srcdir/cases/demonstration.yaml" --cpattn-filter model=cp_1_0 \
    --cpattn-filter world_size=2 --cpattn-filter dtype=bf16 --cpattn-scale 16 test_zeros.py)
tap_has "the short summary begins with the diagnosis" "$(grep '^FAILED' "$scratch/out")" " - out is zero"
# pytest-xdist sends reports to another process in this form.
cat >"$scratch/conftest.py" <<'PY'
def pytest_runtest_logreport(report):
    if report.failed:
        sent = type(report)._from_json(report._to_json())
        print("\nsent:", sent.longrepr.reprcrash.message, sent.longreprtext.count("FAIL dk, chunk 0:"))
PY
# shellcheck disable=SC2086
status=$(run -s $plugin --cpattn-matrix "$top_srcdir/cases/demonstration.yaml" --cpattn-filter model=cp_1_0 \
    --cpattn-filter world_size=2 --cpattn-filter dtype=bf16 --cpattn-scale 16 test_kernel.py)
rm "$scratch/conftest.py"
tap_has "message and figures reach another process" "$(grep '^sent: dk on rank 0: ' "$scratch/out")" " 1"
# shellcheck disable=SC2086
status=$(run $plugin --cpattn-matrix "$top_srcdir/cases/transformer-engine.yaml" --cpattn-subset essential \
    --cpattn-shard 2/20 --cpattn-filter world_size=2 --collect-only test_kernel.py)
tap_has "a subset, and a part of it: there are tests" "$(cat "$scratch/out")" test_kernel.py::test_right
tap_is "a subset, and a part of it" "$status $(grep -c test_kernel.py::test_right "$scratch/out")" \
    "0 $("$top_builddir/cpattn-submit" matrix "$top_srcdir/cases/transformer-engine.yaml" --subset essential \
        --shard 2/20 --filter world_size=2 --list | wc -l)"
# shellcheck disable=SC2086
status=$(run $plugin --cpattn-matrix "$scratch/absent.yaml" test_kernel.py)
tap_is "a missing matrix is a usage error" "$status" 4
tap_has "missing matrix: the message" "$(cat "$scratch/out")" absent.yaml

# The ini file of pytest names the matrix. Its path is relative to the ini file, not to the working
# directory.
mkdir -p "$scratch/project/tests"
cp "$scratch/test_kernel.py" "$scratch/project/tests"
printf '[pytest]\ncpattn_matrix = cases.yaml\n' >"$scratch/project/pytest.ini"
echo 'axes: {world_size: [1, 2, 3]}' >"$scratch/project/cases.yaml"
# shellcheck disable=SC2086
status=$(run $plugin --rootdir "$scratch/project" -c "$scratch/project/pytest.ini" --collect-only project/tests)
tap_is "the settings name a matrix" "$status $(grep -c test_kernel.py::test_right "$scratch/out")" "0 3"
rm "$scratch/project/cases.yaml"
# shellcheck disable=SC2086
status=$(run $plugin -c "$scratch/project/pytest.ini" --collect-only project/tests)
tap_is "they name a missing one: a usage error" "$status $(grep -c "project/cases.yaml" "$scratch/out")" "4 1"
# shellcheck disable=SC2086
tap_is "they name a missing one: pytest's help is there" "$(run $plugin -c "$scratch/project/pytest.ini" --help)" 0
# shellcheck disable=SC2086
status=$(run $plugin -rs test_kernel.py)
tap_has "without a matrix: why tests are skipped" "$(cat "$scratch/out")" "no matrix; give --cpattn-matrix FILE"

# A matrix of collectives, in a process that has the variables of rank 1 of 2 of torchrun.
cat >"$scratch/sums.yaml" <<'YAML'
kind: collective
defaults: {operation: broadcast, count: 100, dtype: int32}
axes: {world_size: [2, 3]}
YAML
cat >"$scratch/test_sum.py" <<'PY'
def test_sum(cpattn_check, cpattn_case):
    assert cpattn_check.rank == 1 and cpattn_case.kind == "collective"
    receive = cpattn_check.empty("receive", "numpy")
    receive[:] = type(cpattn_check)(cpattn_case, 0).input("send", "numpy")
    cpattn_check.insist(receive=receive)
    receive[7] += 1
    assert not cpattn_check.verify(receive=receive)
PY
RANK=1 WORLD_SIZE=2
export RANK WORLD_SIZE
# shellcheck disable=SC2086
status=$(run $plugin --cpattn-matrix "$scratch/sums.yaml" test_sum.py -rs)
tap_is "collectives are tests, too" "$status" 0
tap_has "a case of another number of ranks is skipped" "$(cat "$scratch/out")" \
    "the case has 3 ranks, and torchrun has started 2"
tap_has "the others are run" "$(tail -n 1 "$scratch/out")" "1 passed, 1 skipped"
tap_done
