# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += common/libcommon.la
common_libcommon_la_SOURCES = $(common_sources)

common_sources =
common_sources += common/bytering.c
common_sources += common/bytering.h
common_sources += common/channel.c
common_sources += common/channel.h
common_sources += common/duration.c
common_sources += common/duration.h
common_sources += common/fault.c
common_sources += common/fault.h
common_sources += common/limits.h
common_sources += common/list.h
common_sources += common/log.c
common_sources += common/log.h
common_sources += common/mutation.h
common_sources += common/report.c
common_sources += common/nearest.c
common_sources += common/nearest.h
common_sources += common/net_url.c
common_sources += common/net_url.h
common_sources += common/report.h
common_sources += common/status.c
common_sources += common/status.h
common_sources += common/token.c
common_sources += common/token.h
