# SPDX-License-Identifier: Apache-2.0
# A user's program builds and runs with the installed header, libraries and pkg-config file, linked
# dynamically and statically. The static libraries define no other names than cpattn_*, so one program
# can use all of them.
EXTRA_DIST += tests/client/consumer.c tests/client/consumer_all.c
CLEANFILES += tests/client/consumer tests/client/consumer-static tests/client/consumer-all
consumer_flags = PKG_CONFIG_PATH=$(DESTDIR)$(pkgconfigdir) $(PKG_CONFIG) \
    --define-variable=libdir=$(DESTDIR)$(libdir) --define-variable=includedir=$(DESTDIR)$(includedir)
installcheck-local:
	$(CC) $(CFLAGS) $(INSTRUMENT_CFLAGS) -o tests/client/consumer $(top_srcdir)/tests/client/consumer.c \
	    `$(consumer_flags) --cflags --libs cpattn` $(INSTRUMENT_LDFLAGS)
	LD_LIBRARY_PATH=$(DESTDIR)$(libdir) tests/client/consumer
	$(CC) $(CFLAGS) $(INSTRUMENT_CFLAGS) -o tests/client/consumer-static $(top_srcdir)/tests/client/consumer.c \
	    `$(consumer_flags) --cflags cpattn` $(DESTDIR)$(libdir)/libcpattn.a \
	    `$(consumer_flags) --static --libs cpattn | $(SED) 's/-lcpattn//'` $(INSTRUMENT_LDFLAGS)
	tests/client/consumer-static
	test -z '$(OBJCOPY)' || $(CC) $(CFLAGS) $(INSTRUMENT_CFLAGS) \
	    -o tests/client/consumer-all $(top_srcdir)/tests/client/consumer_all.c \
	    `$(consumer_flags) --cflags cpattn-check cpattn-guest` $(DESTDIR)$(libdir)/libcpattn-check.a \
	    $(DESTDIR)$(libdir)/libcpattn-guest.a $(DESTDIR)$(libdir)/libcpattn.a \
	    `$(consumer_flags) --static --libs cpattn-check cpattn-guest | $(SED) 's/-lcpattn[a-z-]*//g'` \
	    $(INSTRUMENT_LDFLAGS)
	test -z '$(OBJCOPY)' || tests/client/consumer-all
	test -z '$(OBJCOPY)' || for library in libcpattn libcpattn-check libcpattn-guest; do \
	    test ! -f $(DESTDIR)$(libdir)/$$library.a || \
	        ! $(NM) --extern-only --defined-only $(DESTDIR)$(libdir)/$$library.a | \
	            grep -v -e ' cpattn_[a-z]' -e ':$$' -e '^$$' || exit 1; \
	done

test_scripts += tests/client/test_exports.sh

# Replaces the daemon; the label of a case selects its answer.
test_helpers += tests/client/fake_daemon
tests_client_fake_daemon_SOURCES = tests/client/fake_daemon.c $(wire_samples)

test_programs += tests/client/test_client_cases
tests_client_test_client_cases_SOURCES = tests/client/test_client_cases.c

test_programs += tests/client/test_client
tests_client_test_client_SOURCES = tests/client/test_client.c tests/client/fake.c tests/client/fake.h
tests_client_test_client_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=link_exchange

test_programs += tests/client/test_client_cancel
tests_client_test_client_cancel_SOURCES = tests/client/test_client_cancel.c tests/client/fake.c tests/client/fake.h

test_programs += tests/client/test_client_watch
tests_client_test_client_watch_SOURCES = tests/client/test_client_watch.c tests/client/fake.c \
    tests/client/fake.h
tests_client_test_client_watch_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client

long_programs += tests/client/test_client_faults
tests_client_test_client_faults_SOURCES = tests/client/test_client_faults.c tests/client/fake.c \
    tests/client/fake.h
tests_client_test_client_faults_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc
long_scripts += tests/client/test_examples.sh
test_scripts += tests/client/test_protocol.sh

if TLS
test_programs += tests/client/test_client_remote
tests_client_test_client_remote_SOURCES = tests/client/test_client_remote.c $(certificates) $(net_client) \
    $(daemon_fixture)
tests_client_test_client_remote_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_client_test_client_remote_LDADD = client/libclient.la $(daemon_fixture_libs) $(OPENSSL_LIBS)
endif

test_programs += tests/client/test_attend
tests_client_test_attend_SOURCES = tests/client/test_attend.c $(daemon_fixture)
tests_client_test_attend_LDADD = $(LDADD)

# Binary compatibility with programs that are already compiled.
test_programs += tests/client/test_abi
tests_client_test_abi_SOURCES = tests/client/test_abi.c
tests_client_test_abi_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
EXTRA_DIST += tests/client/exported.txt
