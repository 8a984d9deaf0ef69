# SPDX-License-Identifier: Apache-2.0

# CPATTN_CUDA
# Looks for the CUDA toolkit. Sets NVCC, CUDA_PREFIX, CUDA_ARCH and the conditional CUDA. A toolkit
# that was asked for by prefix must be there; "auto" takes it where it is.
AC_DEFUN([CPATTN_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda=auto|no|PREFIX], [the CUDA toolkit [auto]])],
        [], [with_cuda=auto])
    AC_ARG_WITH([cuda-arch],
        [AS_HELP_STRING([--with-cuda-arch=LIST], [compute capabilities, such as "80 90" [90]])],
        [], [with_cuda_arch=90])
    AS_CASE([$with_cuda], [no], [cpattn_cuda_path=],
        [auto|yes], [cpattn_cuda_path="$PATH$PATH_SEPARATOR/usr/local/cuda/bin"],
        [cpattn_cuda_path=$with_cuda/bin])
    AS_IF([test -n "$cpattn_cuda_path"], [AC_PATH_PROG([NVCC], [nvcc], [], [$cpattn_cuda_path])])
    AS_IF([test -z "$NVCC"],
          [AS_CASE([$with_cuda],
               [no], [cpattn_cuda_note="no"],
               [auto], [cpattn_cuda_note="no toolkit found"],
               [yes], [AC_MSG_ERROR([--with-cuda: no nvcc in PATH nor in /usr/local/cuda/bin; name the toolkit with --with-cuda=PREFIX])],
               [AC_MSG_ERROR([--with-cuda=$with_cuda: there is no $with_cuda/bin/nvcc])])],
          [CPATTN_CUDA_FOUND])
    AC_SUBST([CUDA_PREFIX])
    AC_SUBST([CUDA_ARCH])
    AM_CONDITIONAL([CUDA], [test -n "$NVCC"])
])

AC_DEFUN([CPATTN_CUDA_FOUND], [
    CUDA_PREFIX=`AS_DIRNAME(["$NVCC"])`
    CUDA_PREFIX=`AS_DIRNAME(["$CUDA_PREFIX"])`
    CUDA_ARCH=
    for cpattn_arch in `AS_ECHO(["$with_cuda_arch"]) | tr ',;' '  '`; do
        AS_CASE([$cpattn_arch],
            [[[89][0-9]|[89][0-9]a|1[0-9][0-9]|1[0-9][0-9]a]], [CUDA_ARCH="$CUDA_ARCH $cpattn_arch"],
            [AC_MSG_ERROR([--with-cuda-arch: "$cpattn_arch" is not a compute capability from 80 up, such as 90 or 100a])])
    done
    CUDA_ARCH=`AS_ECHO(["$CUDA_ARCH"]) | $SED 's/^ *//'`
    AC_MSG_CHECKING([for the version of $NVCC])
    cpattn_cuda_version=`"$NVCC" --version | $SED -n 's/.*release \([[0-9.]]*\).*/\1/p'`
    AC_MSG_RESULT([$cpattn_cuda_version])
    cpattn_cuda_note="$cpattn_cuda_version in $CUDA_PREFIX, for $CUDA_ARCH"
])
