// SPDX-License-Identifier: Apache-2.0
// JUDGE_CLONES before a function compiles it for several instruction sets. The best one that the
// machine supports is selected at program start. It is meant for loops that compilers vectorize;
// sums may differ in the last bit between machines.
#ifndef CPATTN_JUDGE_CLONES_H
#define CPATTN_JUDGE_CLONES_H

#include <limits.h> // __GLIBC__

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) &&       \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define JUDGE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define JUDGE_CLONES
#endif

#endif
