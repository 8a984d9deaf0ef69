# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += rank/librank.a
rank_librank_a_SOURCES = $(rank_sources)

# Compiled a second time, with mutations, for the tests.
rank_sources =

# The rank process. Take the # away once rank/main.c is there.
#pkglibexec_PROGRAMS += cpattn-rank
#cpattn_rank_SOURCES = rank/main.c
#cpattn_rank_LDADD = $(rank_libs) plan/libplan.la common/libcommon.la \
#    $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
