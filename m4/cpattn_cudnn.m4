# SPDX-License-Identifier: Apache-2.0

# CPATTN_CUDNN
# Looks for the headers of cuDNN and of its frontend, which the provider `cudnn` needs. Sets
# CUDNN_CPPFLAGS, cpattn_cudnn_note for the summary, and the conditional CUDNN. Call it after
# CPATTN_CUDA. Ranks load the library itself; the build does not need it.
AC_DEFUN([CPATTN_CUDNN], [
    AC_ARG_WITH([cudnn],
        [AS_HELP_STRING([--with-cudnn=auto|no|DIR], [build the provider cudnn with the cuDNN frontend in DIR or DIR/include [auto]])],
        [], [with_cudnn=auto])
    CUDNN_CPPFLAGS=
    cpattn_cudnn_off=
    AS_CASE([$with_cudnn],
        [no], [cpattn_cudnn_off="--with-cudnn=no"],
        [auto|yes], [cpattn_cudnn_dirs="$CUDA_PREFIX/include /usr/include /usr/local/include"],
        [cpattn_cudnn_dirs="$with_cudnn $with_cudnn/include $CUDA_PREFIX/include /usr/include"])
    AS_IF([test -n "$cpattn_cuda_off"], [cpattn_cudnn_off="there is no CUDA backend"])
    AS_IF([test -z "$cpattn_cudnn_off"], [
        m4_foreach([header], [[cudnn_frontend.h], [cudnn.h]], [
            cpattn_found=
            for cpattn_dir in $cpattn_cudnn_dirs; do
                AS_IF([test -z "$cpattn_found" && test -f "$cpattn_dir/header"], [cpattn_found=$cpattn_dir])
            done
            AS_IF([test -n "$cpattn_found"], [CUDNN_CPPFLAGS="$CUDNN_CPPFLAGS -isystem $cpattn_found"],
                  [cpattn_cudnn_off="there is no header in $cpattn_cudnn_dirs"])])
    ])
    AS_IF([test -n "$cpattn_cudnn_off"], [
        cpattn_cudnn_note="off: $cpattn_cudnn_off"
        AS_CASE([$with_cudnn], [no|auto], [], [AC_MSG_ERROR([--with-cudnn=$with_cudnn: $cpattn_cudnn_off])])
    ], [cpattn_cudnn_note="frontend and headers:$CUDNN_CPPFLAGS"])
    AC_SUBST([CUDNN_CPPFLAGS])
    AM_CONDITIONAL([CUDNN], [test -z "$cpattn_cudnn_off"])
])
