# SPDX-License-Identifier: Apache-2.0
dist_noinst_SCRIPTS = scripts/check scripts/quickstart scripts/lint scripts/coverage
dist_noinst_SCRIPTS += scripts/sanitize-cuda
dist_noinst_SCRIPTS += scripts/bundle scripts/bundle-check scripts/wheel scripts/packages scripts/packages-check
EXTRA_DIST += scripts/lib.sh scripts/options.sh

test_scripts += scripts/layering
test_scripts += scripts/form

.PHONY: lint
lint:
	$(AM_V_at)$(top_srcdir)/scripts/lint "$(abs_top_builddir)"

.PHONY: coverage
coverage:
	$(AM_V_at)$(top_srcdir)/scripts/coverage "$(abs_top_builddir)"

# A folder that runs without installation. The programs are linked again, with a search path for
# libraries in the folder. DT_RPATH, the older form of the path, also applies to libraries that
# libraries load.
bundle_name = $(PACKAGE)-$(VERSION)-$(host_cpu)
bundle_folder = bundle/$(bundle_name)
bundle_libexec = $(bundle_folder)/libexec/$(PACKAGE)
bundle_path = -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN
bundle_docs = install-dist_docDATA install-docDATA install-dist_examplesDATA install-dist_guestsDATA
bundle_docs += install-man1 install-man5 install-man8
bundle_programs = $(bundle_folder)/bin/cpattnd $(bundle_folder)/bin/cpattn-agent
bundle_programs += $(bundle_folder)/bin/cpattn-submit $(bundle_libexec)/cpattn-rank
if CUDA
bundle_programs += $(bundle_libexec)/cpattn-rank-cuda
endif

$(bundle_folder)/bin/cpattnd: $(cpattnd_OBJECTS) $(cpattnd_DEPENDENCIES)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(LINK) $(bundle_path)/../lib' $(cpattnd_OBJECTS) $(cpattnd_LDADD) $(LIBS)
$(bundle_folder)/bin/cpattn-agent: $(cpattn_agent_OBJECTS) $(cpattn_agent_DEPENDENCIES)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(LINK) $(bundle_path)/../lib' $(cpattn_agent_OBJECTS) $(cpattn_agent_LDADD) $(LIBS)
$(bundle_folder)/bin/cpattn-submit: $(cpattn_submit_OBJECTS) $(cpattn_submit_DEPENDENCIES)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(LINK) $(bundle_path)/../lib' $(cpattn_submit_OBJECTS) $(cpattn_submit_LDADD) $(LIBS)
$(bundle_libexec)/cpattn-rank: $(cpattn_rank_OBJECTS) $(cpattn_rank_DEPENDENCIES)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(LINK) $(bundle_path)/../../lib' $(cpattn_rank_OBJECTS) $(cpattn_rank_LDADD) $(LIBS)
$(bundle_libexec)/cpattn-rank-cuda: $(cpattn_rank_cuda_OBJECTS) $(cpattn_rank_cuda_DEPENDENCIES)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(LINK) $(bundle_path)/../../lib' $(cpattn_rank_cuda_OBJECTS) $(cpattn_rank_cuda_LDADD) $(LIBS)

.PHONY: bundle bundle-check
bundle: $(bundle_programs)
	$(AM_V_at)$(MKDIR_P) $(bundle_folder)/cases
	$(AM_V_at)for file in $(submit_matrices); do cp $(top_srcdir)/$$file $(bundle_folder)/cases/ || exit 1; done
	$(AM_V_at)$(MKDIR_P) $(bundle_folder)/share && ln -sfn ../cases $(bundle_folder)/share/$(PACKAGE)
	$(AM_V_at)rm -rf $(bundle_folder)/doc $(bundle_folder)/share/man
	$(AM_V_at)$(MAKE) $(AM_MAKEFLAGS) $(bundle_docs) DESTDIR= docdir='$(abs_builddir)/$(bundle_folder)/doc' \
	    mandir='$(abs_builddir)/$(bundle_folder)/share/man' >/dev/null
	$(AM_V_at)mv $(bundle_folder)/doc/SECURITY.md $(bundle_folder)/
	$(AM_V_at)$(MKDIR_P) $(bundle_folder)/proto && cp $(top_srcdir)/proto/cpattn.proto $(bundle_folder)/proto/
	$(AM_V_at)cp $(top_srcdir)/LICENSE $(bundle_folder)/
	$(AM_V_at)cp $(top_srcdir)/packaging/bundle.md $(bundle_folder)/README.md
	$(AM_V_at)$(top_srcdir)/scripts/bundle $(bundle_folder) $(bundle_name).tar.xz
bundle-check: bundle
	$(AM_V_at)$(top_srcdir)/scripts/bundle-check $(bundle_name).tar.xz
CLEANFILES += $(bundle_name).tar.xz

# The wheel: the Python package and its libraries. They are linked again, with a search path for
# libraries beside them.
wheel_libs = wheel/lib/libcpattn.so.0 wheel/lib/libcpattn-check.so.0 wheel/lib/libcpattn-guest.so.0
wheel_path = -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN'
wheel_archives = plan/.libs/libplan.a common/.libs/libcommon.a
wheel_whole = -Wl,--whole-archive $(1) -Wl,--no-whole-archive
wheel_shared = $(foreach object,$(1),$(dir $(object)).libs/$(notdir $(object:.lo=.o)))

wheel/bin/cpattn-submit: $(cpattn_submit_OBJECTS) $(cpattn_submit_DEPENDENCIES)
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(LINK) $(bundle_path)/../lib' $(cpattn_submit_OBJECTS) $(cpattn_submit_LDADD) $(LIBS)
wheel/lib/libcpattn.so.0: client/libcpattn.la
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ -Wl,-soname,$(@F) $(wheel_path) \
	    -Wl,--version-script=$(top_srcdir)/client/libcpattn.map \
	    $(call wheel_whole,client/.libs/libclient.a) proto/.libs/libproto.a $(wheel_archives) \
	    $(NNG_LIBS) $(PROTOBUF_C_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
wheel/lib/libcpattn-check.so.0: check/libcpattn-check.la wheel/lib/libcpattn.so.0
	$(AM_V_CCLD)$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ -Wl,-soname,$(@F) $(wheel_path) \
	    -Wl,--version-script=$(top_srcdir)/check/libcpattn-check.map \
	    $(call wheel_whole,check/.libs/libcheck.a) $(wheel_archives) wheel/lib/libcpattn.so.0 \
	    $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
wheel/lib/libcpattn-guest.so.0: guest/libcpattn-guest.la
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ -Wl,-soname,$(@F) $(wheel_path) \
	    -Wl,--version-script=$(top_srcdir)/guest/libcpattn-guest.map \
	    $(call wheel_shared,$(guest_libcpattn_guest_la_OBJECTS)) \
	    $(call wheel_whole,guest/.libs/libguest.a) $(wheel_archives) \
	    $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
if CUDA
wheel_libs += wheel/lib/libcpattn-guest-cuda.so.0
wheel/lib/libcpattn-guest-cuda.so.0: guest/libcpattn-guest-cuda.la
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ -Wl,-soname,$(@F) $(wheel_path) \
	    -Wl,--version-script=$(top_srcdir)/guest/libcpattn-guest.map \
	    $(call wheel_shared,$(guest_libcpattn_guest_cuda_la_OBJECTS)) $(guest_cuda_objects) \
	    $(call wheel_whole,guest/.libs/libguest.a) $(wheel_archives) \
	    $(CUDA_LIBS) $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)
wheel_libs += wheel/lib/libcpattn-check-cuda.so
wheel/lib/libcpattn-check-cuda.so: check/libcpattn-check-cuda.la
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_GEN)cp -L check/.libs/$(@F) $@
endif

.PHONY: wheel
wheel: $(wheel_libs) wheel/bin/cpattn-submit
	$(AM_V_at)$(MKDIR_P) wheel/share/$(PACKAGE)
	$(AM_V_at)for file in $(submit_matrices); do cp $(top_srcdir)/$$file wheel/share/$(PACKAGE)/ || exit 1; done
	$(AM_V_at)$(top_srcdir)/scripts/wheel $(top_srcdir)/python wheel/lib $(VERSION) wheel

clean-local:
	rm -rf bundle wheel

# Debian packages, and their test in a fresh root.
.PHONY: packages packages-check
packages:
	$(AM_V_at)$(top_srcdir)/scripts/packages "$(abs_top_builddir)"
packages-check: packages
	$(AM_V_at)$(top_srcdir)/scripts/packages-check "$(abs_top_builddir)"
EXTRA_DIST += packaging/debian/changelog packaging/debian/control packaging/debian/copyright packaging/debian/rules \
    packaging/debian/entry_points packaging/debian/source/format packaging/debian/cpattnd.install \
    packaging/debian/cpattnd-cuda.install packaging/debian/libcpattn0.install packaging/debian/libcpattn-dev.install \
    packaging/debian/python3-cpattn.install packaging/cpattnd.spec packaging/bundle.md
