# SPDX-License-Identifier: Apache-2.0
# cpattn-submit: a library, which the tests link too, and the main function.
noinst_LIBRARIES += client/libsubmit.a
client_libsubmit_a_SOURCES = $(submit_sources)
client_libsubmit_a_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client $(JANSSON_CFLAGS) $(MXML_CFLAGS) $(SMARTCOLS_CFLAGS) $(CURSES_CFLAGS)

submit_sources =
include $(top_srcdir)/client/submit/outcome/local.mk
include $(top_srcdir)/client/submit/matrix/local.mk
include $(top_srcdir)/client/submit/show/local.mk
include $(top_srcdir)/client/submit/write/local.mk
include $(top_srcdir)/client/submit/tensors/local.mk
include $(top_srcdir)/client/submit/commands/local.mk

submit_libs = client/libsubmit.a client/libclient.la yaml/libyamltree.la $(client_libs) \
    $(YAML_LIBS) $(JANSSON_LIBS) $(MXML_LIBS) $(SMARTCOLS_LIBS) $(CURSES_LIBS)

bin_PROGRAMS += cpattn-submit
cpattn_submit_SOURCES = client/submit/main.c
cpattn_submit_LDADD = $(submit_libs)

submit_matrices =
submit_matrices += cases/collectives.yaml
submit_matrices += cases/demonstration.yaml
submit_matrices += cases/tensor-parallel.yaml
submit_matrices += cases/transformer-engine-p2p.yaml
submit_matrices += cases/transformer-engine.yaml
pkgdata_DATA += $(submit_matrices)
EXTRA_DIST += $(submit_matrices)
include $(top_srcdir)/client/completion/local.mk
