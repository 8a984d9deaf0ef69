# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += judge/libjudge.a
judge_libjudge_a_SOURCES = $(judge_sources)
judge_libjudge_a_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS)

# Compiled a second time, with mutations, for the tests.
judge_sources =
judge_sources += judge/chunk.c
judge_sources += judge/chunk.h
judge_sources += judge/complete.c
judge_sources += judge/complete.h
judge_sources += judge/cpu/reference.c
judge_sources += judge/cpu/reference.h
judge_sources += judge/cpu/verify.c
judge_sources += judge/cpu/verify.h
judge_sources += judge/digest.c
judge_sources += judge/digest.h
judge_sources += judge/digest_word.h
judge_sources += judge/draw.c
judge_sources += judge/draw.h
judge_sources += judge/draw_avx2.c
judge_sources += judge/draw_avx512.c
judge_sources += judge/draw_body.h
judge_sources += judge/draw_plain.c
judge_sources += judge/dtype.c
judge_sources += judge/dtype.h
judge_sources += judge/figures.c
judge_sources += judge/figures.h
judge_sources += judge/inputs.c
judge_sources += judge/inputs.h
judge_sources += judge/padding.c
judge_sources += judge/padding.h
judge_sources += judge/philox.h
judge_sources += judge/results.h
judge_sources += judge/sums.c
judge_sources += judge/sums.h
