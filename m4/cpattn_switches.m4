# SPDX-License-Identifier: Apache-2.0

# CPATTN_SWITCHES
# The switches that change how all files are compiled. Sets INSTRUMENT_CFLAGS, INSTRUMENT_LDFLAGS,
# TEST_TIMEOUT_MULTIPLIER, FUZZ_ENGINE, the conditional FUZZ, and cpattn_sanitize, cpattn_fuzz,
# cpattn_coverage, cpattn_werror and cpattn_faults.
AC_DEFUN([CPATTN_SWITCHES], [
    AC_ARG_ENABLE([sanitize],
        [AS_HELP_STRING([--enable-sanitize=LIST], [address, undefined, thread, or address,undefined])],
        [cpattn_sanitize=$enableval], [cpattn_sanitize=no])
    AC_ARG_ENABLE([fuzz],
        [AS_HELP_STRING([--enable-fuzz], [link the fuzz targets with libFuzzer (needs CC=clang)])],
        [cpattn_fuzz=$enableval], [cpattn_fuzz=no])
    AC_ARG_ENABLE([coverage],
        [AS_HELP_STRING([--enable-coverage], [count executed lines and branches (gcov)])],
        [cpattn_coverage=$enableval], [cpattn_coverage=no])
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [a compiler warning stops the build])],
        [cpattn_werror=$enableval], [cpattn_werror=no])

    AC_ARG_ENABLE([faults],
        [AS_HELP_STRING([--enable-faults], [ranks take orders to misbehave (common/fault.h); for tests only])],
        [cpattn_faults=$enableval], [cpattn_faults=no])

    INSTRUMENT_CFLAGS=
    INSTRUMENT_LDFLAGS=
    AS_CASE([$cpattn_sanitize],
        [no], [],
        [yes], [cpattn_sanitize=address,undefined],
        [address|undefined|thread|address,undefined], [],
        [undefined,address], [cpattn_sanitize=address,undefined],
        [AC_MSG_ERROR([--enable-sanitize=$cpattn_sanitize: choose address, undefined, thread or address,undefined])])
    AS_IF([test "x$cpattn_sanitize" != xno], [
        INSTRUMENT_CFLAGS="-fsanitize=$cpattn_sanitize -fno-sanitize-recover=all -fno-omit-frame-pointer"
        INSTRUMENT_LDFLAGS="-fsanitize=$cpattn_sanitize"
        CPATTN_LINKS_WITH([$INSTRUMENT_CFLAGS],
            [],
            [AC_MSG_ERROR([--enable-sanitize=$cpattn_sanitize: $CC cannot link with it])])
    ])
    AS_IF([test "x$cpattn_fuzz" != xno], [
        CPATTN_LINKS_WITH([-fsanitize=fuzzer-no-link],
            [INSTRUMENT_CFLAGS="$INSTRUMENT_CFLAGS -fsanitize=fuzzer-no-link"],
            [AC_MSG_ERROR([--enable-fuzz: $CC has no libFuzzer; configure with CC=clang])])
    ])
    AS_IF([test "x$cpattn_coverage" != xno], [
        INSTRUMENT_CFLAGS="$INSTRUMENT_CFLAGS --coverage -fprofile-update=atomic -O0"
        INSTRUMENT_LDFLAGS="$INSTRUMENT_LDFLAGS --coverage"
    ])
    # Factor of the tests' time limits. A limit ends only tests that hang, also on slow machines and
    # with instrumented code.
    AS_IF([test -n "$INSTRUMENT_CFLAGS"], [TEST_TIMEOUT_MULTIPLIER=20], [TEST_TIMEOUT_MULTIPLIER=4])
    AS_IF([test "x$cpattn_faults" != xno], [INSTRUMENT_CFLAGS="$INSTRUMENT_CFLAGS -DCPATTN_FAULTS"])
    AC_SUBST([TEST_TIMEOUT_MULTIPLIER])
    AC_SUBST([INSTRUMENT_CFLAGS])
    AC_SUBST([INSTRUMENT_LDFLAGS])
    AC_SUBST([FUZZ_ENGINE], [-fsanitize=fuzzer])
    AM_CONDITIONAL([FUZZ], [test "x$cpattn_fuzz" != xno])
])

# CPATTN_LINKS_WITH(FLAGS, IF-YES, IF-NO)
# Runs IF-YES if an empty program compiles and links with these flags, else IF-NO.
AC_DEFUN([CPATTN_LINKS_WITH], [
    AC_MSG_CHECKING([whether $CC links with $1])
    cpattn_saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $1"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [cpattn_links=yes], [cpattn_links=no])
    CFLAGS=$cpattn_saved_CFLAGS
    AC_MSG_RESULT([$cpattn_links])
    AS_IF([test "x$cpattn_links" = xyes], [$2], [$3])
])
