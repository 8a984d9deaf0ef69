# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += common/libcommon.la
common_libcommon_la_SOURCES = $(common_sources)

common_sources = \
    common/limits.h \
    common/mutation.h \
    common/status.c \
    common/status.h
