# SPDX-License-Identifier: Apache-2.0

# CPATTN_CUDA
# Looks for the CUDA toolkit and for NCCL. Sets NVCC, CUDA_HOST_CXX, CUDA_PREFIX, CUDA_ARCH,
# CUDA_GENCODE, CUDA_GENCODE_SM90, NVCCFLAGS, CUDA_CPPFLAGS, CUDA_LIBS, CUDA_WERROR, NCCL_CPPFLAGS,
# NCCL_LIBS, NCCL_LIBDIR, cpattn_cuda_note for the summary, and the conditionals CUDA and CUDA_SM90.
# With --with-cuda=auto the CUDA backend is built if everything is found. With another value a
# missing part is an error.
AC_DEFUN([CPATTN_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda=auto|no|PREFIX], [build the CUDA backend with this toolkit [auto]])],
        [], [with_cuda=auto])
    AC_ARG_WITH([nccl],
        [AS_HELP_STRING([--with-nccl=PREFIX], [NCCL for the CUDA backend [the toolkit's prefix, /usr, /usr/local]])],
        [], [with_nccl=auto])
    AC_ARG_WITH([cuda-arch],
        [AS_HELP_STRING([--with-cuda-arch=LIST], [compute capabilities to compile for ["80 90"]])],
        [], [with_cuda_arch="80 90"])
    AC_ARG_VAR([NVCCFLAGS], [flags for the CUDA compiler])
    : ${NVCCFLAGS="-O3"}
    AC_ARG_VAR([CXX], [C++ compiler that nvcc compiles for the host with])

    cpattn_cuda_off=
    AS_IF([test "x$with_cuda" = xno], [cpattn_cuda_off="--with-cuda=no"], [
        CPATTN_CUDA_ARCH
        m4_foreach([part], [[TOOLKIT], [HOST], [CODE], [LINK], [NCCL]],
            [AS_IF([test -z "$cpattn_cuda_off"], [CPATTN_CUDA_]part)
            ])
    ])
    AS_IF([test -z "$cpattn_cuda_off"],
          [cpattn_cuda_note="$cpattn_cuda_version in $CUDA_PREFIX, NCCL $cpattn_nccl_version, for $CUDA_ARCH"],
          [cpattn_cuda_note="off: $cpattn_cuda_off"
           AS_CASE([$with_cuda], [no|auto], [],
               [AC_MSG_ERROR([--with-cuda=$with_cuda: $cpattn_cuda_off])])])
    CUDA_WERROR=
    AS_IF([test "x$cpattn_werror" != xno], [CUDA_WERROR="-Werror all-warnings"])
    m4_foreach([variable], [[CUDA_WERROR], [CUDA_HOST_CXX], [CUDA_PREFIX], [CUDA_ARCH], [CUDA_GENCODE],
                            [CUDA_GENCODE_SM90], [CUDA_CPPFLAGS], [CUDA_LIBS], [NCCL_CPPFLAGS], [NCCL_LIBS], [NCCL_LIBDIR]],
        [AC_SUBST(variable)])
    AM_CONDITIONAL([CUDA], [test -z "$cpattn_cuda_off"])
    AM_CONDITIONAL([CUDA_SM90], [test -n "$CUDA_GENCODE_SM90"])
])

# The steps. A step that finds that the CUDA backend cannot be built sets cpattn_cuda_off to the
# reason.

# Sets CUDA_ARCH to the capabilities, each once. Blanks, commas and semicolons separate them in
# --with-cuda-arch. An invalid list is an error, also without the toolkit.
AC_DEFUN([CPATTN_CUDA_ARCH], [
    CUDA_ARCH=
    for cpattn_arch in `AS_ECHO(["$with_cuda_arch"]) | tr ',;' '  '`; do
        AS_CASE([$cpattn_arch],
            [[[89][0-9]|[89][0-9][af]|1[0-9][0-9]|1[0-9][0-9][af]]], [],
            [AC_MSG_ERROR([--with-cuda-arch: "$cpattn_arch" is not a compute capability from 80 up, such as 90 or 100a])])
        AS_CASE([" $CUDA_ARCH "], [*" $cpattn_arch "*], [], [CUDA_ARCH="$CUDA_ARCH $cpattn_arch"])
    done
    CUDA_ARCH=`AS_ECHO(["$CUDA_ARCH"]) | $SED 's/^ *//'`
    AS_IF([test -z "$CUDA_ARCH"], [AC_MSG_ERROR([--with-cuda-arch: the list is empty; give it such as "80 90"])])
])

# Finds nvcc. It may be a link or a wrapper, so nvcc itself is asked for its folder.
AC_DEFUN([CPATTN_CUDA_TOOLKIT], [
    AS_CASE([$with_cuda],
        [auto|yes], [cpattn_cuda_path="$PATH$PATH_SEPARATOR/usr/local/cuda/bin"
                     cpattn_cuda_where="in PATH nor in /usr/local/cuda/bin"],
        [cpattn_cuda_path=$with_cuda/bin
         cpattn_cuda_where="in $with_cuda/bin"])
    AC_PATH_PROG([NVCC], [nvcc], [], [$cpattn_cuda_path])
    AS_IF([test -z "$NVCC"], [cpattn_cuda_off="there is no nvcc $cpattn_cuda_where"], [
        AC_MSG_CHECKING([for the version of $NVCC])
        cpattn_cuda_version=`"$NVCC" --version | $SED -n 's/.*release \([[0-9.]]*\).*/\1/p'`
        AC_MSG_RESULT([$cpattn_cuda_version])
        AS_VERSION_COMPARE([$cpattn_cuda_version], [12.0],
            [cpattn_cuda_off="$NVCC is of CUDA ${cpattn_cuda_version:-of unknown version}, and 12.0 is the oldest that will do"])
    ])
    AS_IF([test -z "$cpattn_cuda_off"], [
        CUDA_PREFIX=`"$NVCC" --dryrun -x cu -c /dev/null 2>&1 | $SED -n 's,^#\$ TOP=,,p'`
        CUDA_PREFIX=`cd "$CUDA_PREFIX" 2>/dev/null && pwd`
        cpattn_cuda_libdir=
        for cpattn_dir in "$CUDA_PREFIX/lib64" "$CUDA_PREFIX/lib" \
                "$CUDA_PREFIX/targets/$host_cpu-linux/lib" "$CUDA_PREFIX/lib/$host_cpu-linux-gnu"; do
            AS_IF([test -z "$cpattn_cuda_libdir" && test -f "$cpattn_dir/libcudart_static.a"],
                  [cpattn_cuda_libdir=$cpattn_dir])
        done
        AS_IF([test -z "$cpattn_cuda_libdir"], [cpattn_cuda_off="there is no libcudart_static.a below $CUDA_PREFIX"])
        AS_IF([test "x$CUDA_PREFIX" = x/usr], [], [CUDA_CPPFLAGS="-isystem $CUDA_PREFIX/include"])
        CUDA_LIBS="-L$cpattn_cuda_libdir -lcudart_static -ldl -lrt -lpthread -lstdc++"
    ])
])

# Finds nvcc's host compiler: nvcc accepts only a path, without ccache and options. If CC has
# ccache, nvcc gets it, too.
AC_DEFUN([CPATTN_CUDA_HOST], [
    AC_CHECK_PROGS([CXX], [g++ clang++ c++])
    CUDA_HOST_CXX=
    for cpattn_word in $CXX; do
        AS_CASE([$cpattn_word], [ccache|*/ccache|-*], [], [CUDA_HOST_CXX=$cpattn_word])
    done
    AS_IF([test -z "$CUDA_HOST_CXX"], [cpattn_cuda_off="there is no C++ compiler, which nvcc needs (g++)"])
    AS_CASE([$CC], [ccache\ *|*/ccache\ *], [NVCC="${CC%% *} $NVCC"])
])

# Sets the -gencode options. nvcc must know each capability. The newest is also compiled to PTX,
# which drivers translate for later devices; capabilities with "a" or "f" are not, because they are
# for one device or family. Kernels with instructions of sm_90a (kernels/cuda/sm90_*.cu) are
# compiled only for it.
AC_DEFUN([CPATTN_CUDA_CODE], [
    cpattn_cuda_known=" `$NVCC --list-gpu-code | tr '\n' ' '`"
    CUDA_GENCODE=
    CUDA_GENCODE_SM90=
    cpattn_cuda_newest=0
    for cpattn_arch in $CUDA_ARCH; do
        cpattn_number=${cpattn_arch%@<:@af@:>@}
        AS_CASE([$cpattn_cuda_known], [*" sm_$cpattn_number "*], [],
            [AC_MSG_ERROR([--with-cuda-arch: $NVCC cannot compile for $cpattn_arch; it knows$cpattn_cuda_known])])
        CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$cpattn_arch,code=sm_$cpattn_arch"
        AS_IF([test "$cpattn_number" = "$cpattn_arch" && test "$cpattn_number" -gt "$cpattn_cuda_newest"],
              [cpattn_cuda_newest=$cpattn_number])
        AS_IF([test "$cpattn_number" = 90],
              [CUDA_GENCODE_SM90="-gencode arch=compute_90a,code=sm_90a"])
    done
    AS_IF([test -n "$CUDA_GENCODE_SM90"], [CUDA_CPPFLAGS="$CUDA_CPPFLAGS -DCPATTN_SM90"])
    AS_IF([test "$cpattn_cuda_newest" -gt 0],
          [CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$cpattn_cuda_newest,code=compute_$cpattn_cuda_newest"])
])

# Checks that host compiler, C library and toolkit make a program together.
AC_DEFUN([CPATTN_CUDA_LINK], [
    AC_MSG_CHECKING([whether $NVCC with $CUDA_HOST_CXX makes programs])
    cat >conftest.cu <<_ACEOF
#include <cuda_runtime_api.h>
#include <math.h>
__global__ void kernel(float *x) { x@<:@threadIdx.x@:>@ = expf(x@<:@threadIdx.x@:>@); }
extern "C" int launch(float *x) { kernel<<<1, 32>>>(x); return (int)cudaGetLastError(); }
_ACEOF
    cat >conftest_main.c <<_ACEOF
int launch(float *x);
int main(void) { return launch(0) != 0; }
_ACEOF
    AS_IF([$NVCC -ccbin "$CUDA_HOST_CXX" $CUDA_GENCODE -std=c++17 -Xcompiler -fPIE -c -o conftest_cu.o conftest.cu >&AS_MESSAGE_LOG_FD 2>&1 &&
           $CC $CFLAGS -o conftest conftest_main.c conftest_cu.o $LDFLAGS $CUDA_LIBS >&AS_MESSAGE_LOG_FD 2>&1],
          [AC_MSG_RESULT([yes])],
          [AC_MSG_RESULT([no])
           cpattn_cuda_off="$NVCC cannot make a program with $CUDA_HOST_CXX as host compiler (config.log says why); another one is chosen with CXX"])
    rm -f conftest.cu conftest_main.c conftest_cu.o conftest
])

# Finds NCCL 2.18 or later: older versions have no ncclCommSplit.
AC_DEFUN([CPATTN_CUDA_NCCL], [
    AS_CASE([$with_nccl],
        [auto|yes], [cpattn_nccl_prefixes="$CUDA_PREFIX /usr /usr/local"],
        [no], [cpattn_nccl_prefixes=],
        [cpattn_nccl_prefixes=$with_nccl])
    cpattn_nccl_prefix=
    NCCL_LIBDIR=
    for cpattn_prefix in $cpattn_nccl_prefixes; do
        for cpattn_dir in "$cpattn_prefix/lib64" "$cpattn_prefix/lib" "$cpattn_prefix/lib/$host_cpu-linux-gnu"; do
            AS_IF([test -z "$NCCL_LIBDIR" && test -f "$cpattn_prefix/include/nccl.h" && test -f "$cpattn_dir/libnccl.so"],
                  [NCCL_LIBDIR=$cpattn_dir cpattn_nccl_prefix=$cpattn_prefix])
        done
    done
    AS_IF([test -z "$NCCL_LIBDIR"],
          [cpattn_cuda_off="there is no NCCL (nccl.h and libnccl.so) in ${cpattn_nccl_prefixes:-reach}; name its place with --with-nccl=PREFIX"], [
        AS_CASE([$cpattn_nccl_prefix], [/usr|"$CUDA_PREFIX"], [], [NCCL_CPPFLAGS="-isystem $cpattn_nccl_prefix/include"])
        NCCL_LIBS="-L$NCCL_LIBDIR -Wl,-rpath,$NCCL_LIBDIR -lnccl"
        AS_CASE([$NCCL_LIBDIR], [/usr/lib|/usr/lib64|/usr/lib/*-linux-gnu], [NCCL_LIBS=-lnccl])
        cpattn_saved_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $NCCL_CPPFLAGS $CUDA_CPPFLAGS"
        AC_MSG_CHECKING([for the version of NCCL in $cpattn_nccl_prefix])
        AC_COMPUTE_INT([cpattn_nccl_code], [NCCL_VERSION_CODE], [#include <nccl.h>], [cpattn_nccl_code=0])
        CPPFLAGS=$cpattn_saved_CPPFLAGS
        cpattn_nccl_version=`expr $cpattn_nccl_code / 10000`.`expr $cpattn_nccl_code / 100 % 100`.`expr $cpattn_nccl_code % 100`
        AC_MSG_RESULT([$cpattn_nccl_version])
        AS_IF([test "$cpattn_nccl_code" -lt 21800],
              [cpattn_cuda_off="NCCL in $cpattn_nccl_prefix is $cpattn_nccl_version, and 2.18 is the oldest that will do"])
        cpattn_saved_LIBS=$LIBS
        LIBS="$NCCL_LIBS $CUDA_LIBS $LIBS"
        AC_MSG_CHECKING([for ncclCommSplit in $NCCL_LIBDIR])
        AC_LINK_IFELSE([AC_LANG_CALL([], [ncclCommSplit])], [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             cpattn_cuda_off="libnccl.so in $NCCL_LIBDIR cannot be linked (config.log says why)"])
        LIBS=$cpattn_saved_LIBS
    ])
])
