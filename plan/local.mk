# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += plan/libplan.la
plan_libplan_la_SOURCES = \
    plan/bias.c \
    plan/bias.h \
    plan/bias_grad.c \
    plan/bias_grad.h \
    plan/builder.c \
    plan/builder.h \
    plan/case.c \
    plan/case.h \
    plan/check.c \
    plan/check.h \
    plan/check_fit.c \
    plan/cost.c \
    plan/cost.h \
    plan/deal.c \
    plan/deal.h \
    plan/describe.c \
    plan/explain.c \
    plan/fields.c \
    plan/gather.c \
    plan/hierarchical.c \
    plan/lengths.c \
    plan/lengths.h \
    plan/memory.c \
    plan/number.c \
    plan/number.h \
    plan/part.c \
    plan/part.h \
    plan/plan.c \
    plan/plan.h \
    plan/ring.c \
    plan/ring.h \
    plan/shard.c \
    plan/shard.h \
    plan/slice.c \
    plan/slice.h \
    plan/support.c \
    plan/support.h \
    plan/team.c \
    plan/team.h \
    plan/tensors.c \
    plan/tensors.h \
    plan/timeline.c \
    plan/timeline.h \
    plan/ulysses.c
