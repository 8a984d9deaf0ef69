# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += rank/librank.a
rank_librank_a_SOURCES = $(rank_sources)

# The tests compile these files again, with mutations.
rank_sources =
rank_sources += rank/collective.c
rank_sources += rank/deliver.c
rank_sources += rank/deliver.h
rank_sources += rank/deliver_expected.c
rank_sources += rank/attends.c
rank_sources += rank/attends.h
rank_sources += rank/diagnose.c
rank_sources += rank/diagnose.h
rank_sources += rank/engine.h
rank_sources += rank/engine_cpu.c
rank_sources += rank/executor.c
rank_sources += rank/executor.h
rank_sources += rank/inputs.c
rank_sources += rank/inputs.h
rank_sources += rank/job.c
rank_sources += rank/judge_host.c
rank_sources += rank/judge_host.h
rank_sources += rank/kind.c
rank_sources += rank/kind.h
rank_sources += rank/kinds.c
rank_sources += rank/job.h
rank_sources += rank/linear.c
rank_sources += rank/operations.c
rank_sources += rank/operations.h
rank_sources += rank/process.c
rank_sources += rank/process.h
rank_sources += rank/provider_probe.c
rank_sources += rank/provider_probe.h
rank_sources += rank/providers.c
rank_sources += rank/providers.h
rank_sources += rank/segments.c
rank_sources += rank/segments.h
rank_sources += rank/session.c
rank_sources += rank/session.h
rank_sources += rank/swap.c
rank_sources += rank/swap.h
rank_sources += rank/untouched.c
rank_sources += rank/untouched.h

# The rank program.
pkglibexec_PROGRAMS += cpattn-rank
cpattn_rank_SOURCES = rank/main.c
cpattn_rank_LDADD = $(rank_libs) plan/libplan.la common/libcommon.la \
    $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
