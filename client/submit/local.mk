# SPDX-License-Identifier: Apache-2.0
# The command: a library that the tests link too, and its main function.
noinst_LIBRARIES += client/libsubmit.a
client_libsubmit_a_SOURCES = $(submit_sources)
client_libsubmit_a_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(XML_CFLAGS) $(SMARTCOLS_CFLAGS)

submit_sources =
submit_sources += client/submit/fields.c
submit_sources += client/submit/fields.h
submit_sources += client/submit/filter.c
submit_sources += client/submit/filter.h
submit_sources += client/submit/matrix.c
submit_sources += client/submit/matrix.h
submit_sources += client/submit/matrix_list.c
submit_sources += client/submit/matrix_list.h

submit_libs = client/libsubmit.a client/libclient.la yaml/libyamltree.la $(client_libs) \
    $(YAML_LIBS) $(JANSSON_LIBS) $(XML_LIBS) $(SMARTCOLS_LIBS)

submit_matrices =
submit_matrices += cases/demonstration.yaml
submit_matrices += cases/transformer-engine-p2p.yaml
pkgdata_DATA += $(submit_matrices)
EXTRA_DIST += $(submit_matrices)
