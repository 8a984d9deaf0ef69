# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# For script tests that run Python with the libraries of this build: source it, call these.
: "${top_srcdir:=.}" "${top_builddir:=build}"

# Skips the whole test unless python3 runs the statement.
python_needs() { # STATEMENT WHAT-IS-MISSING
    python3 -c "$1" 2>/dev/null && return
    echo "1..0 # SKIP python3 has no $2"
    exit 0
}

# Lets Python find the package of the source tree and the libraries of the build, in these folders.
# Skips the whole test if they are built with sanitizers. Sets `top`, the absolute path of the source
# tree.
python_libraries() { # FOLDER...
    top=$(cd "$top_srcdir" && pwd)
    CPATTN_LIBRARY_PATH=
    for python_folder; do
        case $(nm -D "$top_builddir/$python_folder"/.libs/*.so 2>/dev/null) in
        *__asan* | *__tsan* | *__ubsan*)
            echo "1..0 # SKIP python3 cannot load libraries with sanitizers"
            exit 0
            ;;
        esac
        CPATTN_LIBRARY_PATH=${CPATTN_LIBRARY_PATH:+$CPATTN_LIBRARY_PATH:}$(cd "$top_builddir" && pwd)/$python_folder/.libs
    done
    PYTHONPATH=$top/python
    PYTHONDONTWRITEBYTECODE=1
    export CPATTN_LIBRARY_PATH PYTHONPATH PYTHONDONTWRITEBYTECODE
}
