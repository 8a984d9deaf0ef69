# SPDX-License-Identifier: Apache-2.0
# The core of the daemon: single events, and simulated runs (tests/core/test_sim --help).
core_fixture = tests/core/core_fixture.c tests/core/core_fixture.h
core_libs = tests/support/libtesting.a daemon/libcore.a common/libcommon.la $(CHECK_LIBS) $(PTHREAD_LIBS)

test_programs += tests/core/test_core
tests_core_test_core_SOURCES = tests/core/test_core.c $(core_fixture)
tests_core_test_core_LDADD = $(core_libs)

test_programs += tests/core/test_core_schedule
tests_core_test_core_schedule_SOURCES = tests/core/test_core_schedule.c $(core_fixture)
tests_core_test_core_schedule_LDADD = $(core_libs)

test_programs += tests/core/test_core_turns
tests_core_test_core_turns_SOURCES = tests/core/test_core_turns.c $(core_fixture)
tests_core_test_core_turns_LDADD = $(core_libs)

test_programs += tests/core/test_core_spares
tests_core_test_core_spares_SOURCES = tests/core/test_core_spares.c $(core_fixture)
tests_core_test_core_spares_LDADD = $(core_libs)

test_programs += tests/core/test_core_spares_room
tests_core_test_core_spares_room_SOURCES = tests/core/test_core_spares_room.c $(core_fixture)
tests_core_test_core_spares_room_LDADD = $(core_libs)

test_programs += tests/core/test_core_starts
tests_core_test_core_starts_SOURCES = tests/core/test_core_starts.c $(core_fixture)
tests_core_test_core_starts_LDADD = $(core_libs)

test_programs += tests/core/test_core_stuck
tests_core_test_core_stuck_SOURCES = tests/core/test_core_stuck.c $(core_fixture)
tests_core_test_core_stuck_LDADD = $(core_libs)

test_programs += tests/core/test_core_hosts
tests_core_test_core_hosts_SOURCES = tests/core/test_core_hosts.c $(core_fixture)
tests_core_test_core_hosts_LDADD = $(core_libs)

long_programs += tests/core/test_sim_hosts
tests_core_test_sim_hosts_SOURCES = \
    tests/core/test_sim_hosts.c \
    tests/core/hosts/agents.c \
    tests/core/hosts/judge.c \
    tests/core/hosts/sim_hosts.h
tests_core_test_sim_hosts_LDADD = $(core_libs)

test_programs += tests/core/test_core_guests
tests_core_test_core_guests_SOURCES = tests/core/test_core_guests.c $(core_fixture)
tests_core_test_core_guests_LDADD = $(core_libs)

test_programs += tests/core/test_core_clients
tests_core_test_core_clients_SOURCES = tests/core/test_core_clients.c $(core_fixture)
tests_core_test_core_clients_LDADD = $(core_libs)

test_programs += tests/core/test_core_parts
tests_core_test_core_parts_SOURCES = tests/core/test_core_parts.c
tests_core_test_core_parts_LDADD = $(core_libs)
tests_core_test_core_parts_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc

test_programs += tests/core/test_core_deadline
tests_core_test_core_deadline_SOURCES = tests/core/test_core_deadline.c $(core_fixture)
tests_core_test_core_deadline_LDADD = $(core_libs)

test_programs += tests/core/test_sim
tests_core_test_sim_SOURCES = \
    tests/core/test_sim.c \
    tests/core/sim/judge.c \
    tests/core/sim/orders.c \
    tests/core/sim/ranks.c \
    tests/core/sim/record.c \
    tests/core/sim/record.h \
    tests/core/sim/sim.h \
    tests/core/sim/standby.c \
    tests/core/sim/stuck.c \
    tests/core/sim/trace.c \
    tests/core/sim/turns.c \
    tests/core/sim/world.c
tests_core_test_sim_LDADD = $(core_libs)
EXTRA_DIST += tests/core/sim/seeds
