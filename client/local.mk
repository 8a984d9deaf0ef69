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

# In the installed archive only the library's own names are global, as in the shared library with
# its version script.
install-exec-hook:
	@archive='$(DESTDIR)$(libdir)/libcpattn.a'; \
	if test -f "$$archive" && test -n '$(OBJCOPY)'; then \
	    set -e; object=client/libcpattn-whole.o; \
	    $(LD) -r -o $$object --whole-archive "$$archive"; \
	    $(OBJCOPY) --wildcard --keep-global-symbol='cpattn_[a-z]*' $$object; \
	    rm -f "$$archive"; \
	    $(AR) cr "$$archive" $$object; \
	    $(RANLIB) "$$archive"; \
	    rm -f $$object; \
	fi

client_libs = proto/libproto.la plan/libplan.la common/libcommon.la \
    $(NNG_LIBS) $(PROTOBUF_C_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

include $(top_srcdir)/client/submit/local.mk
