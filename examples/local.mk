# SPDX-License-Identifier: Apache-2.0
# Examples to copy. They use only the public headers and libraries. The tests run them.
examplesdir = $(docdir)/examples
dist_examples_DATA = examples/harness.c examples/harness.py examples/kernel.c
guestsdir = $(examplesdir)/guests
dist_guests_DATA = examples/guests/numpy_attention.py examples/guests/torch_ring.py \
    examples/guests/torch_parallel.py examples/guests/transformer_engine.py

check_PROGRAMS += examples/harness
examples_harness_SOURCES = examples/harness.c
examples_harness_CPPFLAGS = -I$(top_srcdir)/client
examples_harness_LDADD = client/libcpattn.la

check_PROGRAMS += examples/kernel
examples_kernel_SOURCES = examples/kernel.c
examples_kernel_CPPFLAGS = -I$(top_srcdir)/client -I$(top_srcdir)/check
examples_kernel_LDADD = check/libcpattn-check.la client/libcpattn.la $(MATH_LIBS)

# The example in the manual cpattn(3).
check_PROGRAMS += examples/manual
nodist_examples_manual_SOURCES = examples/manual.c
examples_manual_CPPFLAGS = -I$(top_srcdir)/client
examples_manual_LDADD = client/libcpattn.la
CLEANFILES += examples/manual.c
examples/manual.c: doc/cpattn.3
	$(AM_V_GEN)$(MKDIR_P) examples && \
	$(SED) -e '1,/^\.Sh EXAMPLES/d' -e '/^\.Ed/,$$d' -e '/^\.[^.]/d' -e '/^Run /d' -e 's,\\e,\\,g' \
	    $(top_srcdir)/doc/cpattn.3 >$@.tmp && mv $@.tmp $@
