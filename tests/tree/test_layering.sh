#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The checks of the tree find faults: each check runs on a copy of the tree with one fault. Prints TAP.
set -u
: "${top_srcdir:=.}"
folders="common plan yaml proto judge kernels transport rank daemon client check guest examples tests bench"
number=0
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT

# Builds a tree of one or two files. Passes if CHECK exits with 1 there and prints EXPECTED.
notices() { # CHECK FILE TEXT EXPECTED [FILE TEXT]
    number=$((number + 1))
    tree=$scratch/$number
    mkdir "$tree"
    for folder in $folders; do
        mkdir -p "$tree/$folder"
    done
    mkdir -p "$tree/$(dirname "$2")"
    printf '// SPDX-License-Identifier: Apache-2.0\n%b' "$3" >"$tree/$2"
    if [ $# -gt 4 ]; then
        printf '// SPDX-License-Identifier: Apache-2.0\n%b' "$6" >"$tree/$5"
    fi
    said=$("$top_srcdir/scripts/$1" "$tree")
    status=$?
    if [ $status -eq 1 ] && printf '%s\n' "$said" | grep -qF "# $4"; then
        echo "ok $number - $1: $4"
    else
        echo "not ok $number - $1: $4"
        printf '%s\n' "$said" | sed 's/^/# /'
    fi
}

notices layering plan/x.c '#include "rank/x.h"\n' "plan/x.c includes rank/x.h"
notices layering common/x.h '#include "plan/case.h"\n' "common/x.h includes plan/case.h"
notices layering daemon/core/x.c '#include "daemon/service/x.h"\n' "daemon/core/x.c includes daemon/service/x.h"
notices layering daemon/pool/x.c '#include "daemon/service/x.h"\n' "daemon/pool/x.c includes daemon/service/x.h"
notices layering client/submit/show/x.c '#include "client/submit/commands/x.h"\n' \
    "client/submit/show/x.c includes client/submit/commands/x.h"
notices layering daemon/core/x.c '#include <time.h>\n' "daemon/core/x.c includes <time.h>"
notices layering judge/cpu/x.c '#include "plan/plan.h"\n' "judge/cpu/x.c includes plan/plan.h"
notices layering judge/x.c '#include "kernels/dtype.h"\n' "judge/x.c includes kernels/dtype.h"
notices layering client/library.c '#include <nng/nng.h>\n' "client/library.c includes nng/nng.h"
notices layering daemon/net/x.c '#include <nng/nng.h>\n' "daemon/net/x.c includes nng/nng.h"
notices layering rank/x.c '#include <cblas.h>\n' "rank/x.c includes cblas.h"
notices layering common/x.c '#include "status.h"\n' 'common/x.c includes "status.h" without its folder'
notices layering client/x.h '#include "client/y.h"\n' "tsort: client/y" client/y.c '#include "client/x.h"\n'
notices layering daemon/core/x.h '#include "daemon/core/y.h"\n' "tsort: daemon/core/y" \
    daemon/core/y.c '#include "daemon/core/x.h"\n'
notices layering plan/x.c '#include "plan/y.h"\n' "tsort: plan/y" plan/y.h '#include "plan/x.h"\n'
notices form plan/x.c "$(printf 'int x(void)\\n{\\n%s}\\n' "$(yes '    y();\n' | head -n 69 | tr -d '\n')")" \
    "plan/x.c:3: a function of 71 lines"
notices form plan/x.c "$(yes 'int x;\n' | head -n 600 | tr -d '\n')" "plan/x.c: 601 lines"

echo "1..$number"
