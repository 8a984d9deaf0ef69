# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += plan/libplan.la
plan_libplan_la_SOURCES = $(plan_sources)

# Compiled a second time, with mutations, for the tests.
plan_sources =
plan_sources += plan/case.h
plan_sources += plan/shard.h
plan_sources += plan/slice.h
