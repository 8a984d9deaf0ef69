# SPDX-License-Identifier: Apache-2.0
# What became of cases, in facts and numbers.
submit_sources += client/submit/outcome/bench.c
submit_sources += client/submit/outcome/bench.h
submit_sources += client/submit/outcome/changes.c
submit_sources += client/submit/outcome/changes.h
submit_sources += client/submit/outcome/measure.c
submit_sources += client/submit/outcome/measure.h
submit_sources += client/submit/outcome/outcome.c
submit_sources += client/submit/outcome/outcome.h
submit_sources += client/submit/outcome/record.c
submit_sources += client/submit/outcome/record.h
submit_sources += client/submit/outcome/text.c
submit_sources += client/submit/outcome/text.h
submit_sources += client/submit/outcome/bench_record.c
submit_sources += client/submit/outcome/bench_record.h
submit_sources += client/submit/outcome/totals.c
submit_sources += client/submit/outcome/totals.h
