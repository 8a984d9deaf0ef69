# SPDX-License-Identifier: Apache-2.0
# The command: a library that the tests link too, and its main function.
noinst_LIBRARIES += client/libsubmit.a
client_libsubmit_a_SOURCES = $(submit_sources)
client_libsubmit_a_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(XML_CFLAGS) $(SMARTCOLS_CFLAGS)

submit_sources =
submit_sources += client/submit/answer.c
submit_sources += client/submit/answer.h
submit_sources += client/submit/attend_command.c
submit_sources += client/submit/bench.c
submit_sources += client/submit/bench.h
submit_sources += client/submit/bench_command.c
submit_sources += client/submit/case_command.c
submit_sources += client/submit/command.c
submit_sources += client/submit/command.h
submit_sources += client/submit/compare.c
submit_sources += client/submit/compare.h
submit_sources += client/submit/daemon_command.c
submit_sources += client/submit/dump.c
submit_sources += client/submit/dump.h
submit_sources += client/submit/error_map.c
submit_sources += client/submit/error_map.h
submit_sources += client/submit/explain_command.c
submit_sources += client/submit/fields.c
submit_sources += client/submit/fields.h
submit_sources += client/submit/figures.c
submit_sources += client/submit/figures.h
submit_sources += client/submit/filter.c
submit_sources += client/submit/filter.h
submit_sources += client/submit/flight.c
submit_sources += client/submit/flight.h
submit_sources += client/submit/installed.c
submit_sources += client/submit/installed.h
submit_sources += client/submit/json.c
submit_sources += client/submit/json.h
submit_sources += client/submit/junit.c
submit_sources += client/submit/junit.h
submit_sources += client/submit/matrix.c
submit_sources += client/submit/matrix.h
submit_sources += client/submit/matrix_command.c
submit_sources += client/submit/matrix_dump.c
submit_sources += client/submit/matrix_dump.h
submit_sources += client/submit/matrix_list.c
submit_sources += client/submit/matrix_list.h
submit_sources += client/submit/matrix_report.c
submit_sources += client/submit/matrix_report.h
submit_sources += client/submit/matrix_rules.c
submit_sources += client/submit/matrix_rules.h
submit_sources += client/submit/measure.c
submit_sources += client/submit/measure.h
submit_sources += client/submit/options.c
submit_sources += client/submit/options.h
submit_sources += client/submit/outcome.c
submit_sources += client/submit/outcome.h
submit_sources += client/submit/progress.c
submit_sources += client/submit/progress.h
submit_sources += client/submit/safetensors.c
submit_sources += client/submit/safetensors.h
submit_sources += client/submit/shrink.c
submit_sources += client/submit/shrink.h
submit_sources += client/submit/support.c
submit_sources += client/submit/support.h
submit_sources += client/submit/svg.c
submit_sources += client/submit/svg.h
submit_sources += client/submit/table.c
submit_sources += client/submit/table.h
submit_sources += client/submit/tensors.c
submit_sources += client/submit/tensors.h
submit_sources += client/submit/terminal.c
submit_sources += client/submit/terminal.h
submit_sources += client/submit/text.c
submit_sources += client/submit/text.h

submit_libs = client/libsubmit.a client/libclient.la yaml/libyamltree.la $(client_libs) \
    $(YAML_LIBS) $(JANSSON_LIBS) $(XML_LIBS) $(SMARTCOLS_LIBS)

bin_PROGRAMS += cpattn-submit
cpattn_submit_SOURCES = client/submit/main.c
cpattn_submit_LDADD = $(submit_libs)

submit_matrices =
submit_matrices += cases/demonstration.yaml
submit_matrices += cases/transformer-engine-p2p.yaml
submit_matrices += cases/transformer-engine.yaml
pkgdata_DATA += $(submit_matrices)
EXTRA_DIST += $(submit_matrices)
include $(top_srcdir)/client/completion/local.mk
