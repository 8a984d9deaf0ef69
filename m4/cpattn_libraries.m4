# SPDX-License-Identifier: Apache-2.0

# CPATTN_MISSING(DEBIAN-PACKAGE)
# Adds a package to cpattn_missing, so that one message names all that are missing.
AC_DEFUN([CPATTN_MISSING], [cpattn_missing="$cpattn_missing $1"])

# CPATTN_PKG(PREFIX, MODULE, DEBIAN-PACKAGE)
AC_DEFUN([CPATTN_PKG], [PKG_CHECK_MODULES([$1], [$2], [], [CPATTN_MISSING([$3])])])

# CPATTN_BARE_LIBRARY(PREFIX, LIBRARY, FUNCTION, HEADER, DEBIAN-PACKAGE)
# Finds a library that has no pkg-config file. Sets PREFIX_LIBS.
AC_DEFUN([CPATTN_BARE_LIBRARY], [
    cpattn_found=yes
    AC_CHECK_HEADER([$4], [], [cpattn_found=no])
    AC_CHECK_LIB([$2], [$3], [$1_LIBS=-l$2], [cpattn_found=no])
    AS_IF([test "x$cpattn_found" = xno], [CPATTN_MISSING([$5])])
    AC_SUBST([$1_LIBS])
])

# CPATTN_NNG_VERSION
# Sets cpattn_nng_version for the summary.
AC_DEFUN([CPATTN_NNG_VERSION], [
    AC_COMPUTE_INT([cpattn_nng_major], [NNG_MAJOR_VERSION], [#include <nng/nng.h>], [cpattn_nng_major=0])
    AC_COMPUTE_INT([cpattn_nng_minor], [NNG_MINOR_VERSION], [#include <nng/nng.h>], [cpattn_nng_minor=0])
    AC_COMPUTE_INT([cpattn_nng_patch], [NNG_PATCH_VERSION], [#include <nng/nng.h>], [cpattn_nng_patch=0])
    cpattn_nng_version=$cpattn_nng_major.$cpattn_nng_minor.$cpattn_nng_patch
])

# CPATTN_TLS
# TLS for clients of the daemon over a network. Sets the conditional TLS, and cpattn_tls_note for the
# summary.
AC_DEFUN([CPATTN_TLS], [
    AC_ARG_WITH([tls],
        [AS_HELP_STRING([--with-tls=CHOICE], [TLS for clients over a network: auto, yes or no [auto: where OpenSSL 3 is installed]])],
        [], [with_tls=auto])
    AS_CASE([$with_tls], [auto|yes|no], [],
        [AC_MSG_ERROR([--with-tls=$with_tls: choose auto, yes or no])])
    cpattn_tls=no
    cpattn_tls_note="off: --with-tls=no"
    AS_IF([test "x$with_tls" != xno], [
        PKG_CHECK_MODULES([OPENSSL], [openssl >= 3.0], [
            cpattn_tls=yes
            cpattn_tls_note="OpenSSL `$PKG_CONFIG --modversion openssl`"
        ], [
            cpattn_tls_note="off: no OpenSSL 3 (Debian: libssl-dev)"
            AS_IF([test "x$with_tls" = xyes], [CPATTN_MISSING([libssl-dev])])
        ])
    ])
    AS_IF([test $cpattn_tls = yes], [cpattn_tls_number=1], [cpattn_tls_number=0])
    AC_DEFINE_UNQUOTED([HAVE_TLS], [$cpattn_tls_number], [Whether clients over a network may use TLS])
    AC_SUBST([OPENSSL_CFLAGS])
    AC_SUBST([OPENSSL_LIBS])
    AM_CONDITIONAL([TLS], [test $cpattn_tls = yes])
])

# CPATTN_SECCOMP
# Filters of system calls for ranks. Sets the conditional SECCOMP, and cpattn_seccomp_note for the
# summary.
AC_DEFUN([CPATTN_SECCOMP], [
    AC_ARG_WITH([seccomp],
        [AS_HELP_STRING([--with-seccomp=CHOICE], [filters of system calls for ranks: auto, yes or no [auto: where libseccomp is installed]])],
        [], [with_seccomp=auto])
    AS_CASE([$with_seccomp], [auto|yes|no], [],
        [AC_MSG_ERROR([--with-seccomp=$with_seccomp: choose auto, yes or no])])
    cpattn_seccomp=no
    cpattn_seccomp_note="off: --with-seccomp=no"
    AS_IF([test "x$with_seccomp" != xno], [
        PKG_CHECK_MODULES([SECCOMP], [libseccomp >= 2.5], [
            cpattn_seccomp=yes
            cpattn_seccomp_note="libseccomp `$PKG_CONFIG --modversion libseccomp`"
        ], [
            cpattn_seccomp_note="off: no libseccomp (Debian: libseccomp-dev)"
            AS_IF([test "x$with_seccomp" = xyes], [CPATTN_MISSING([libseccomp-dev])])
        ])
    ])
    AC_SUBST([SECCOMP_CFLAGS])
    AC_SUBST([SECCOMP_LIBS])
    AM_CONDITIONAL([SECCOMP], [test $cpattn_seccomp = yes])
])

# CPATTN_OPTIONAL(NAME, PREFIX, MODULE, DEBIAN-PACKAGE, PURPOSE)
# --with-NAME=auto|yes|no for a library that the build can do without. Sets the conditional PREFIX,
# PREFIX_CFLAGS, PREFIX_LIBS, and cpattn_NAME_note for the summary.
AC_DEFUN([CPATTN_OPTIONAL], [
    AC_ARG_WITH([$1],
        [AS_HELP_STRING([--with-$1=CHOICE], [$5: auto, yes or no [auto: where $4 is installed]])],
        [], [with_$1=auto])
    AS_CASE([$with_$1], [auto|yes|no], [],
        [AC_MSG_ERROR([--with-$1=$with_$1: choose auto, yes or no])])
    cpattn_$1=no
    cpattn_$1_note="off: --with-$1=no"
    AS_IF([test "x$with_$1" != xno], [
        PKG_CHECK_MODULES([$2], [$3], [
            cpattn_$1=yes
            cpattn_$1_note="`$PKG_CONFIG --modversion "$3" | head -n 1`"
        ], [
            cpattn_$1_note="off: not found (Debian: $4)"
            AS_IF([test "x$with_$1" = xyes], [CPATTN_MISSING([$4])])
        ])
    ])
    AC_SUBST([$2_CFLAGS])
    AC_SUBST([$2_LIBS])
    AM_CONDITIONAL([$2], [test $cpattn_$1 = yes])
])

# CPATTN_BLAS
AC_DEFUN([CPATTN_BLAS], [
    AC_ARG_WITH([blas],
        [AS_HELP_STRING([--with-blas=LIBS], [link this CBLAS, such as "-lblis" [openblas from pkg-config]])],
        [], [with_blas=openblas])
    AS_CASE([$with_blas],
        [yes|openblas], [CPATTN_PKG([BLAS], [openblas], [libopenblas-dev])],
        [no], [AC_MSG_ERROR([--with-blas=no: the CPU backend needs a CBLAS])],
        [BLAS_CFLAGS= BLAS_LIBS=$with_blas])
    AC_SUBST([BLAS_CFLAGS])
    AC_SUBST([BLAS_LIBS])
    AS_IF([test -n "$BLAS_LIBS"], [
        cpattn_saved_LIBS=$LIBS
        cpattn_saved_CPPFLAGS=$CPPFLAGS
        LIBS="$BLAS_LIBS $LIBS"
        CPPFLAGS="$CPPFLAGS $BLAS_CFLAGS"
        AC_MSG_CHECKING([for cblas_sgemm in $BLAS_LIBS])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cblas.h>]],
            [[float a = 1, c = 0;
              cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 1, 1, 1, 1.0f, &a, 1, &a, 1, 0.0f, &c, 1);]])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             CPATTN_MISSING([libopenblas-dev])])
        AC_CHECK_FUNCS([openblas_set_num_threads openblas_get_config])
        LIBS=$cpattn_saved_LIBS
        CPPFLAGS=$cpattn_saved_CPPFLAGS
    ])
])

# CPATTN_LIBRARIES
# Finds the libraries and generators that the project needs.
AC_DEFUN([CPATTN_LIBRARIES], [
    cpattn_missing=
    CPATTN_BARE_LIBRARY([NNG], [nng], [nng_ctx_open], [nng/nng.h], [libnng-dev])
    AS_IF([test -n "$NNG_LIBS"], [CPATTN_NNG_VERSION])
    CPATTN_BARE_LIBRARY([EV], [ev], [ev_loop_new], [ev.h], [libev-dev])
    CPATTN_PKG([PROTOBUF_C], [libprotobuf-c >= 1.4], [libprotobuf-c-dev])
    AC_PATH_PROGS([PROTOC_C], [protoc-c])
    AS_IF([test -z "$PROTOC_C"], [CPATTN_MISSING([protobuf-c-compiler])])
    CPATTN_TLS
    CPATTN_SECCOMP
    CPATTN_OPTIONAL([microhttpd], [MICROHTTPD], [libmicrohttpd >= 0.9.71], [libmicrohttpd-dev], [metrics of the daemon over HTTP])
    CPATTN_OPTIONAL([curses], [CURSES], [ncurses], [libncurses-dev], [cpattn-submit top on the whole screen])
    CPATTN_BLAS
    CPATTN_PKG([YAML], [yaml-0.1], [libyaml-dev])
    CPATTN_PKG([JANSSON], [jansson], [libjansson-dev])
    CPATTN_PKG([MXML], [mxml >= 3 mxml < 4], [libmxml-dev])
    CPATTN_PKG([XML], [libxml-2.0], [libxml2-dev])
    CPATTN_PKG([SMARTCOLS], [smartcols], [libsmartcols-dev])
    CPATTN_PKG([CHECK], [check >= 0.15], [check])
    AC_SUBST([PTHREAD_LIBS], [-pthread])
    AC_SUBST([MATH_LIBS], [-lm])
    AS_IF([test -n "$cpattn_missing"],
          [AC_MSG_ERROR([missing:$cpattn_missing. Debian: apt-get install$cpattn_missing; or run scripts/quickstart, which installs what is missing and builds])])
])
