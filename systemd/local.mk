# SPDX-License-Identifier: Apache-2.0
systemdsystemunit_DATA = systemd/cpattnd.service
dist_sysusers_DATA = systemd/cpattn.conf
EXTRA_DIST += systemd/cpattnd.service.in
CLEANFILES += systemd/cpattnd.service

systemd/cpattnd.service: systemd/cpattnd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && \
	$(SED) -e 's,[@]sbindir[@],$(sbindir),g' $(top_srcdir)/systemd/cpattnd.service.in >$@.tmp && \
	mv $@.tmp $@
