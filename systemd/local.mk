# SPDX-License-Identifier: Apache-2.0
systemdsystemunit_DATA = systemd/cpattnd.service systemd/cpattn-agent.service
dist_sysusers_DATA = systemd/cpattn.conf
doc_DATA += systemd/cpattnd.yaml
dist_doc_DATA += systemd/rank-user.conf systemd/real-time.conf
dist_doc_DATA += systemd/cpattnd.sbatch
EXTRA_DIST += systemd/cpattnd.service.in systemd/cpattn-agent.service.in systemd/cpattnd.yaml.in
CLEANFILES += systemd/cpattnd.service systemd/cpattn-agent.service systemd/cpattnd.yaml

settingsdir = $(sysconfdir)/cpattnd
fill_in_paths = $(SED) -e 's,[@]sbindir[@],$(sbindir),g' -e 's,[@]bindir[@],$(bindir),g' \
    -e 's,[@]settingsdir[@],$(settingsdir),g' \
    -e 's,[@]runtimedir[@],$(runtimedir),g' -e 's,[@]pkglibexecdir[@],$(pkglibexecdir),g'

systemd/cpattnd.service: systemd/cpattnd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && \
	$(fill_in_paths) $(top_srcdir)/systemd/cpattnd.service.in >$@.tmp && mv $@.tmp $@

systemd/cpattn-agent.service: systemd/cpattn-agent.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && \
	$(fill_in_paths) $(top_srcdir)/systemd/cpattn-agent.service.in >$@.tmp && mv $@.tmp $@

systemd/cpattnd.yaml: systemd/cpattnd.yaml.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && \
	$(fill_in_paths) $(top_srcdir)/systemd/cpattnd.yaml.in >$@.tmp && mv $@.tmp $@

# The settings are installed only if there are none, and removed only if they are unchanged.
install-data-hook:
	@$(MKDIR_P) '$(DESTDIR)$(settingsdir)'
	@test -e '$(DESTDIR)$(settingsdir)/cpattnd.yaml' || \
	    $(INSTALL_DATA) systemd/cpattnd.yaml '$(DESTDIR)$(settingsdir)/cpattnd.yaml'
uninstall-hook:
	@if cmp -s systemd/cpattnd.yaml '$(DESTDIR)$(settingsdir)/cpattnd.yaml'; then \
	    rm -f '$(DESTDIR)$(settingsdir)/cpattnd.yaml'; \
	    rmdir '$(DESTDIR)$(settingsdir)' 2>/dev/null || :; \
	fi
