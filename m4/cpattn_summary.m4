# SPDX-License-Identifier: Apache-2.0

# CPATTN_SUMMARY
# Prints the choices of configure.
AC_DEFUN([CPATTN_SUMMARY], [
    AS_ECHO([""])
    AS_ECHO(["cpattnd $PACKAGE_VERSION"])
    cpattn_line () { printf '  %-12s %s\n' "$[1]" "$[2]"; }
    cpattn_line prefix "$prefix"
    cpattn_line compiler "$CC"
    cpattn_line cflags "$CFLAGS"
    cpattn_line sanitize "$cpattn_sanitize"
    cpattn_line fuzz "$cpattn_fuzz"
    cpattn_line coverage "$cpattn_coverage"
    cpattn_line faults "$cpattn_faults"
    cpattn_line blas "$BLAS_LIBS"
    cpattn_line nng "$cpattn_nng_version"
    cpattn_line tls "$cpattn_tls_note"
    cpattn_line seccomp "$cpattn_seccomp_note"
    cpattn_line microhttpd "$cpattn_microhttpd_note"
    cpattn_line curses "$cpattn_curses_note"
    cpattn_line cuda "$cpattn_cuda_note"
    cpattn_line cudnn "$cpattn_cudnn_note"
    AS_ECHO([""])
])
