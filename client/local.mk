# SPDX-License-Identifier: Apache-2.0
# The code of the client. libcpattn contains it; the command and the tests link it directly.
noinst_LTLIBRARIES += client/libclient.la
client_libclient_la_SOURCES = \
    client/attend.c \
    client/attend_memory.c \
    client/attend_memory.h \
    client/case.c \
    client/client.c \
    client/client.h \
    client/cpattn.h \
    client/cpattn_answer.h \
    client/cpattn_watch.h \
    client/figures.c \
    client/figures.h \
    client/link.c \
    client/link.h \
    client/link_refusals.c \
    client/link_refusals.h \
    client/link_tls.c \
    client/link_tls.h \
    client/request.c \
    client/request.h \
    client/result.c \
    client/rpc.c \
    client/rpc.h \
    client/status.c \
    client/target.c \
    client/target.h \
    client/watch.c
client_libclient_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
include_HEADERS += client/cpattn.h client/cpattn_answer.h client/cpattn_watch.h

lib_LTLIBRARIES += client/libcpattn.la
client_libcpattn_la_SOURCES =
client_libcpattn_la_LIBADD = client/libclient.la $(client_libs)
client_libcpattn_la_LDFLAGS = $(AM_LDFLAGS) -no-undefined \
    -version-info $(LIBCPATTN_VERSION_INFO) \
    -Wl,--version-script=$(top_srcdir)/client/libcpattn.map
EXTRA_client_libcpattn_la_DEPENDENCIES = client/libcpattn.map
EXTRA_DIST += client/libcpattn.map
pkgconfig_DATA += client/cpattn.pc

# In the installed archives only the libraries' own names are global, as in the shared libraries with
# their version scripts.
install-exec-hook:
	@test -n '$(OBJCOPY)' || exit 0; set -e; \
	for library in libcpattn libcpattn-check libcpattn-guest; do \
	    archive='$(DESTDIR)$(libdir)'/$$library.a; \
	    test -f "$$archive" || continue; \
	    object=client/$$library-whole.o; \
	    $(LD) -r --force-group-allocation -o $$object --whole-archive "$$archive"; \
	    $(OBJCOPY) --wildcard --keep-global-symbol='cpattn_[a-z]*' $$object; \
	    rm -f "$$archive"; \
	    $(AR) cr "$$archive" $$object; \
	    $(RANLIB) "$$archive"; \
	    rm -f $$object; \
	done

client_libs = proto/libproto.la plan/libplan.la common/libcommon.la \
    $(NNG_LIBS) $(PROTOBUF_C_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

include $(top_srcdir)/client/submit/local.mk
