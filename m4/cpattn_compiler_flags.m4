# SPDX-License-Identifier: Apache-2.0

# CPATTN_PROBE_FLAG(VARIABLE, FLAG)
# Appends the flag to the variable if the compiler and the linker accept it without a warning.
AC_DEFUN([CPATTN_PROBE_FLAG], [
    AC_MSG_CHECKING([whether $CC accepts $2])
    cpattn_saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $2"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <string.h>]], [[char c = 0; memset(&c, 1, 1);]])],
                   [cpattn_accepts=yes], [cpattn_accepts=no])
    CFLAGS=$cpattn_saved_CFLAGS
    AC_MSG_RESULT([$cpattn_accepts])
    AS_IF([test "x$cpattn_accepts" = xyes], [$1="$$1 $2"])
])

# CPATTN_COMPILER_FLAGS
# Sets WARN_CFLAGS, HARDEN_CPPFLAGS, HARDEN_CFLAGS and HARDEN_LDFLAGS.
AC_DEFUN([CPATTN_COMPILER_FLAGS], [
    WARN_CFLAGS=
    m4_foreach_w([flag],
        [-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
         -Wpointer-arith -Wformat=2 -Wundef -Wvla -Wwrite-strings -Wlogical-op
         -Wduplicated-cond -Wimplicit-fallthrough],
        [CPATTN_PROBE_FLAG([WARN_CFLAGS], flag)])
    AS_IF([test "x$cpattn_werror" != xno], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])

    HARDEN_CPPFLAGS=
    HARDEN_CFLAGS=
    HARDEN_LDFLAGS=
    # Sanitizers check the string functions, but not their fortified variants. Without optimisation
    # the C library warns about the macro; the probe then leaves it out.
    AS_IF([test "x$cpattn_sanitize" = xno && test "x$cpattn_coverage" = xno],
          [CPATTN_PROBE_FLAG([HARDEN_CPPFLAGS], [-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2])])
    m4_foreach([flag], [[-fstack-protector-strong], [-fstack-clash-protection], [-fcf-protection],
                        [-fPIE], [-fno-strict-overflow]],
        [CPATTN_PROBE_FLAG([HARDEN_CFLAGS], flag)])
    m4_foreach([flag], [[[-Wl,-z,relro]], [[-Wl,-z,now]], [[-Wl,-z,noexecstack]], [[-Wl,--as-needed]]],
        [CPATTN_PROBE_FLAG([HARDEN_LDFLAGS], flag)])
    HARDEN_LDFLAGS=`AS_ECHO(["$HARDEN_LDFLAGS"]) | $SED 's/^ *//'`

    AC_SUBST([WARN_CFLAGS])
    AC_SUBST([HARDEN_CPPFLAGS])
    AC_SUBST([HARDEN_CFLAGS])
    AC_SUBST([HARDEN_LDFLAGS])
])
