# SPDX-License-Identifier: Apache-2.0
test_scripts += tests/daemon/test_unit.sh
test_scripts += tests/daemon/test_settings.sh
test_scripts += tests/daemon/test_journald.sh

test_programs += tests/daemon/test_answer_cache
tests_daemon_test_answer_cache_SOURCES = tests/daemon/test_answer_cache.c daemon/service/answer_cache.c
tests_daemon_test_answer_cache_LDADD = tests/support/libtesting.a $(CHECK_LIBS) $(PTHREAD_LIBS)

test_programs += tests/daemon/test_events
tests_daemon_test_events_SOURCES = tests/daemon/test_events.c daemon/service/events.c \
    daemon/service/events.h
tests_daemon_test_events_LDADD = daemon/libserver.a $(LDADD)

# The real daemon with real ranks, with faulty ranks, and with faulty clients.
daemon_fixture = tests/daemon/daemon_fixture.c tests/daemon/daemon_fixture.h \
    tests/daemon/daemon_scene.c tests/daemon/daemon_scene.h
daemon_fixture_libs = tests/support/libtesting.a $(base_libs) $(NNG_LIBS) $(PROTOBUF_C_LIBS) $(CHECK_LIBS) \
    $(PTHREAD_LIBS) $(MATH_LIBS)

# Clients over a network.
net_client = tests/daemon/net_client.c tests/daemon/net_client.h

test_programs += tests/daemon/test_daemon
tests_daemon_test_daemon_SOURCES = tests/daemon/test_daemon.c $(daemon_fixture)
tests_daemon_test_daemon_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_daemon_life
tests_daemon_test_daemon_life_SOURCES = tests/daemon/test_daemon_life.c $(net_client) $(daemon_fixture)
tests_daemon_test_daemon_life_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_gpus
tests_daemon_test_gpus_SOURCES = tests/daemon/test_gpus.c \
    daemon/machine/gpus.c daemon/machine/gpus.h daemon/process/probe.c daemon/process/probe.h \
    daemon/process/spawn.c daemon/process/spawn.h daemon/process/confine.c daemon/process/confine.h \
    daemon/process/proc.c daemon/process/proc.h daemon/process/filter.h
if SECCOMP
tests_daemon_test_gpus_SOURCES += daemon/process/filter.c
tests_daemon_test_gpus_LDADD = $(LDADD) $(SECCOMP_LIBS)
else
tests_daemon_test_gpus_SOURCES += daemon/process/filter_none.c
endif

test_programs += tests/daemon/test_starter
tests_daemon_test_starter_SOURCES = tests/daemon/test_starter.c daemon/pool/starter.c daemon/pool/starter.h \
    daemon/settings/guests.c daemon/settings/guests.h $(process_sources)
tests_daemon_test_starter_LDADD = $(LDADD) $(EV_LIBS) $(SECCOMP_LIBS)

# Crews that have ranks only on other hosts.
far_crews = tests/daemon/far_crews.c tests/daemon/far_crews.h daemon/pool/crew.c daemon/pool/crew.h \
    daemon/pool/crew_state.h daemon/pool/rank_process.c daemon/pool/rank_process.h \
    daemon/pool/stderr_text.c daemon/pool/stderr_text.h $(squad_sources) \
    daemon/settings/guests.c daemon/settings/guests.h $(process_sources)

test_programs += tests/daemon/test_crew
tests_daemon_test_crew_SOURCES = tests/daemon/test_crew.c $(far_crews)
tests_daemon_test_crew_LDADD = $(LDADD) $(EV_LIBS) $(SECCOMP_LIBS)

test_programs += tests/daemon/test_pool_text
tests_daemon_test_pool_text_SOURCES = tests/daemon/test_pool_text.c daemon/service/pool_text.c \
    daemon/service/pool_text.h $(far_crews)
tests_daemon_test_pool_text_LDADD = $(LDADD) $(EV_LIBS) $(SECCOMP_LIBS)

test_programs += tests/daemon/test_host
tests_daemon_test_host_SOURCES = tests/daemon/test_host.c daemon/machine/host.c daemon/machine/host.h

test_programs += tests/daemon/test_loop_lag
tests_daemon_test_loop_lag_SOURCES = tests/daemon/test_loop_lag.c daemon/service/loop_lag.c \
    daemon/service/loop_lag.h
tests_daemon_test_loop_lag_LDADD = $(LDADD) $(EV_LIBS)

test_programs += tests/daemon/test_metrics
tests_daemon_test_metrics_SOURCES = tests/daemon/test_metrics.c daemon/service/metrics.c \
    daemon/service/metrics.h daemon/service/tally.c daemon/service/tally.h

test_programs += tests/daemon/test_time_bounds
tests_daemon_test_time_bounds_SOURCES = tests/daemon/test_time_bounds.c daemon/machine/time_bounds.c \
    daemon/machine/time_bounds.h

long_programs += tests/daemon/test_daemon_deadline
tests_daemon_test_daemon_deadline_SOURCES = tests/daemon/test_daemon_deadline.c \
    daemon/machine/time_bounds.c daemon/machine/time_bounds.h daemon/machine/host.c daemon/machine/host.h \
    $(daemon_fixture)
tests_daemon_test_daemon_deadline_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_daemon_gpus
tests_daemon_test_daemon_gpus_SOURCES = tests/daemon/test_daemon_gpus.c $(daemon_fixture)
tests_daemon_test_daemon_gpus_LDADD = $(daemon_fixture_libs)

long_programs += tests/daemon/test_daemon_ranks
tests_daemon_test_daemon_ranks_SOURCES = tests/daemon/test_daemon_ranks.c $(daemon_fixture)
tests_daemon_test_daemon_ranks_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_daemon_spares
tests_daemon_test_daemon_spares_SOURCES = tests/daemon/test_daemon_spares.c $(daemon_fixture)
tests_daemon_test_daemon_spares_LDADD = $(daemon_fixture_libs)

long_programs += tests/daemon/test_daemon_stuck
tests_daemon_test_daemon_stuck_SOURCES = tests/daemon/test_daemon_stuck.c $(daemon_fixture)
tests_daemon_test_daemon_stuck_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_daemon_start
tests_daemon_test_daemon_start_SOURCES = tests/daemon/test_daemon_start.c $(daemon_fixture)
tests_daemon_test_daemon_start_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_daemon_limits
tests_daemon_test_daemon_limits_SOURCES = tests/daemon/test_daemon_limits.c $(daemon_fixture)
tests_daemon_test_daemon_limits_LDADD = $(daemon_fixture_libs)

if SECCOMP
test_programs += tests/daemon/test_daemon_filter
tests_daemon_test_daemon_filter_SOURCES = tests/daemon/test_daemon_filter.c $(daemon_fixture)
tests_daemon_test_daemon_filter_LDADD = $(daemon_fixture_libs)
endif

test_programs += tests/daemon/test_daemon_rank_user
tests_daemon_test_daemon_rank_user_SOURCES = tests/daemon/test_daemon_rank_user.c $(daemon_fixture)
tests_daemon_test_daemon_rank_user_LDADD = $(daemon_fixture_libs)

test_helpers += tests/daemon/odd_rank
tests_daemon_odd_rank_SOURCES = tests/daemon/odd_rank.c
tests_daemon_odd_rank_LDADD = $(daemon_fixture_libs)

# The real rank program with faults on command (common/fault.h).
test_helpers += tests/daemon/faulty_rank
tests_daemon_faulty_rank_SOURCES = rank/main.c common/fault.c common/fault.h $(rank_sources)
tests_daemon_faulty_rank_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS) -DCPATTN_FAULTS
tests_daemon_faulty_rank_LDADD = judge/libjudge.a kernels/libkernels.a transport/libtransport.a \
    plan/libplan.la \
    common/libcommon.la $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

long_programs += tests/daemon/test_fault_matrix
fault_scene = tests/daemon/fault_scene.c tests/daemon/fault_cells.c tests/daemon/fault_scene.h \
    tests/support/raw_client.c \
    tests/support/raw_client.h
tests_daemon_test_fault_matrix_SOURCES = tests/daemon/test_fault_matrix.c $(fault_scene)
tests_daemon_test_fault_matrix_LDADD = $(daemon_fixture_libs)

long_programs += tests/daemon/test_fault_spares
tests_daemon_test_fault_spares_SOURCES = tests/daemon/test_fault_spares.c $(fault_scene)
tests_daemon_test_fault_spares_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_environment
tests_daemon_test_environment_SOURCES = tests/daemon/test_environment.c tests/support/raw_client.c \
    tests/support/raw_client.h \
    $(daemon_fixture)
tests_daemon_test_environment_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_failing_calls
tests_daemon_test_failing_calls_SOURCES = tests/daemon/test_failing_calls.c tests/support/raw_client.c \
    tests/support/raw_client.h
tests_daemon_test_failing_calls_CPPFLAGS = $(AM_CPPFLAGS)
if SECCOMP
tests_daemon_test_failing_calls_CPPFLAGS += -DWITH_FILTER
endif
tests_daemon_test_failing_calls_LDADD = $(daemon_fixture_libs)
check_LTLIBRARIES += tests/daemon/slow_users.la
tests_daemon_slow_users_la_SOURCES = tests/daemon/slow_users.c
tests_daemon_slow_users_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere

check_LTLIBRARIES += tests/daemon/fail_calls.la
tests_daemon_fail_calls_la_SOURCES = tests/daemon/fail_calls.c
tests_daemon_fail_calls_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere

test_programs += tests/daemon/test_daemon_clients
tests_daemon_test_daemon_clients_SOURCES = tests/daemon/test_daemon_clients.c $(daemon_fixture)
tests_daemon_test_daemon_clients_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_daemon_again
tests_daemon_test_daemon_again_SOURCES = tests/daemon/test_daemon_again.c $(daemon_fixture)
tests_daemon_test_daemon_again_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_daemon_users
tests_daemon_test_daemon_users_SOURCES = tests/daemon/test_daemon_users.c $(daemon_fixture)
tests_daemon_test_daemon_users_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_daemon_watch
tests_daemon_test_daemon_watch_SOURCES = tests/daemon/test_daemon_watch.c $(daemon_fixture)
tests_daemon_test_daemon_watch_LDADD = $(daemon_fixture_libs)

long_programs += tests/daemon/test_daemon_socket
tests_daemon_test_daemon_socket_SOURCES = tests/daemon/test_daemon_socket.c $(daemon_fixture)
tests_daemon_test_daemon_socket_LDADD = $(daemon_fixture_libs)

if MICROHTTPD
test_programs += tests/daemon/test_daemon_metrics
tests_daemon_test_daemon_metrics_SOURCES = tests/daemon/test_daemon_metrics.c $(net_client) $(daemon_fixture)
tests_daemon_test_daemon_metrics_LDADD = $(daemon_fixture_libs)
endif

long_programs += tests/daemon/test_daemon_tcp
tests_daemon_test_daemon_tcp_SOURCES = tests/daemon/test_daemon_tcp.c $(net_client) $(daemon_fixture)
tests_daemon_test_daemon_tcp_LDADD = $(daemon_fixture_libs)

if TLS
certificates = tests/daemon/certificates.c tests/daemon/certificates.h
tls_scene = tests/daemon/tls_scene.c tests/daemon/tls_scene.h $(certificates) $(net_client) $(daemon_fixture)

test_programs += tests/daemon/test_daemon_certificates
tests_daemon_test_daemon_certificates_SOURCES = tests/daemon/test_daemon_certificates.c $(tls_scene)
tests_daemon_test_daemon_certificates_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_daemon_test_daemon_certificates_LDADD = $(daemon_fixture_libs) $(OPENSSL_LIBS)

test_programs += tests/daemon/test_daemon_subjects
tests_daemon_test_daemon_subjects_SOURCES = tests/daemon/test_daemon_subjects.c $(tls_scene)
tests_daemon_test_daemon_subjects_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_daemon_test_daemon_subjects_LDADD = $(daemon_fixture_libs) $(OPENSSL_LIBS)

long_programs += tests/daemon/test_daemon_tls
tests_daemon_test_daemon_tls_SOURCES = tests/daemon/test_daemon_tls.c $(tls_scene)
tests_daemon_test_daemon_tls_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_daemon_test_daemon_tls_LDADD = $(daemon_fixture_libs) $(OPENSSL_LIBS)
endif

test_helpers += tests/daemon/early_client
tests_daemon_early_client_SOURCES = tests/daemon/early_client.c
tests_daemon_early_client_LDADD = $(daemon_fixture_libs)

test_programs += tests/daemon/test_deposits
tests_daemon_test_deposits_SOURCES = tests/daemon/test_deposits.c $(daemon_fixture)
