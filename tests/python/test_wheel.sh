#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The wheel is self-contained. The programs and commands of doc/test-your-kernel.md work as printed,
# in an empty folder with a minimal PATH. Prints TAP; skipped if Python cannot create a virtual
# environment or has no numpy.
set -u
: "${top_srcdir:=.}" "${top_builddir:=build}"
# shellcheck source=tests/support/tap.sh
. "$top_srcdir/tests/support/tap.sh"
page=$top_srcdir/doc/test-your-kernel.md
numpy=$(python3 -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))' 2>/dev/null)
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
if [ -z "$numpy" ] || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    echo "1..0 # SKIP python3 has no numpy or makes no virtual environments"
    exit 0
fi
case $(nm -D "$top_builddir/check/.libs/libcpattn-check.so" 2>/dev/null) in
*__asan* | *__tsan* | *__ubsan*)
    echo "1..0 # SKIP python3 cannot load libraries with sanitizers"
    exit 0
    ;;
esac
interpreter=$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))')

# Prints code block NUMBER of a language on the page.
block() { # LANGUAGE NUMBER
    awk -v fence="\`\`\`$1" -v wanted="$2" '
        $0 == "```" { inside = 0 }
        inside { print }
        $0 == fence { inside = ++number == wanted }' "$page"
}

bare() { # COMMANDS
    (cd "$scratch" && env -i HOME="$scratch" PATH="$interpreter:/usr/bin:/bin" PIP_NO_INDEX=1 \
        PIP_DISABLE_PIP_VERSION_CHECK=1 OPENBLAS_NUM_THREADS=1 sh -euc "$1") >"$scratch/out" 2>&1
    echo $?
}

make -C "$top_builddir" wheel >"$scratch/out" 2>&1
tap_is "the wheel is made" $? 0
cp "$top_builddir"/wheel/cpattn-*.whl "$scratch/" || { cat "$scratch/out"; exit 99; }
block python 1 >"$scratch/kernel.py"
block python 2 >"$scratch/judge.py"

# pip has no index here: the environment borrows numpy from the machine and has no other package.
tap_is "it installs into an empty environment" "$(bare "$(block sh 1 | sed 's/ numpy$//')")" 0
site=$(cd "$scratch" && judge/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
ln -s "$numpy/numpy" "$site/numpy"
[ ! -d "$numpy/numpy.libs" ] || ln -s "$numpy/numpy.libs" "$site/numpy.libs"

status=$(bare "$(block sh 2)")
tap_is "a right kernel passes" "$status" 0
tap_has "the verdict is a pass" "$(head -n 1 "$scratch/out")" "pass: cpattn-submit case"
[ "$status" = 0 ] || sed 's/^/# /' "$scratch/out"
tap_is "a wrong kernel fails" "$(bare "$(block sh 3)")" 1
tap_has "the diagnosis is that of the page" "$(tail -n 1 "$scratch/out")" \
    "$(sed -n 's/^    \(diagnosis: .*\)/\1/p' "$page")"

cat >"$scratch/where.py" <<'PY'
import cpattn
import cpattn.guest
check = cpattn.Check(cpattn.Case(world_size=1, seqlen=8))
try:
    cpattn.guest.serve(None, library="numpy")  # loads its library, and then asks for a daemon
except SystemExit:
    pass
ours = ("cpattn", "nng", "protobuf-c", "openblas", "gfortran", "mbed")
with open("/proc/self/maps") as maps:
    paths = {line.split()[-1] for line in maps if ".so" in line}
print([p for p in paths if any(name in p for name in ours) and "/cpattn/lib/" not in p])
PY
bare "judge/bin/python where.py" >/dev/null
tap_is "no library comes from elsewhere" "$(grep -v '^this is a guest of cpattnd' "$scratch/out")" "[]"
tap_is "the guest's library is of the wheel" "$(grep -c '^this is a guest of cpattnd' "$scratch/out")" 1

# The command is in the wheel, with its matrix files.
tap_is "its command lists an installed matrix" "$(bare "judge/bin/cpattn-submit matrix demonstration.yaml --list --json")" 0
tap_is "with all cases" "$(grep -c '"id"' "$scratch/out")" 16
tap_lacks "the command finds all libraries" "$(ldd "$site/cpattn/bin/cpattn-submit" 2>&1)" "not found"
tap_has "and those of the wheel" "$(ldd "$site/cpattn/bin/cpattn-submit" 2>&1)" "/cpattn/bin/../lib/libnng"

# A guest in the environment of the wheel.
builddir=$(cd "$top_builddir" && pwd)
cp "$top_srcdir/examples/guests/numpy_attention.py" "$scratch/"
cat >"$scratch/guest.sh" <<SH
timeout --foreground -k 10 300 "$builddir/cpattnd" --socket ./socket --backend cpu --guest mine="judge/bin/python numpy_attention.py" 2>log &
until "$builddir/cpattn-submit" status --socket ./socket >status 2>&1; do kill -0 \$! || exit 99; sleep 0.1; done
"$builddir/cpattn-submit" case --socket ./socket --implementation mine --world-size 1 --seqlen 64 --heads 2 || bad=1
kill \$!
wait \$! || bad=1
exit "\${bad:-0}"
SH
status=$(bare ". ./guest.sh")
tap_is "a guest runs from the wheel alone" "$status" 0
[ "$status" = 0 ] || cat "$scratch/out" "$scratch/log" | sed 's/^/# /'
if [ -e "$top_builddir/guest/.libs/libcpattn-guest-cuda.so.0" ]; then
    lib=$site/cpattn/lib
    tap_lacks "its part for GPUs finds all libraries" "$(ldd "$lib/libcpattn-guest-cuda.so.0" 2>&1)" "not found"
    tap_has "its libraries are beside it" "$(ldd "$lib/libcpattn-guest-cuda.so.0" 2>&1)" "$lib/libopenblas"
fi
tap_done
