# SPDX-License-Identifier: Apache-2.0
# A test program is two lines at the end of this file:
#     test_programs += tests/test_thing
#     tests_test_thing_SOURCES = tests/test_thing.c
# It may use everything below; give it a _LDADD and _LDFLAGS of its own to link with $(mutated_libs)
# and $(mutated_ldflags) instead.
# A fuzz target is two lines too, with fuzz_programs and _LDADD = $(fuzz_libs); the files it replays
# in `make check` lie in tests/corpus/NAME.
test_programs =
test_scripts =
test_helpers =
fuzz_programs =
check_LTLIBRARIES =

check_PROGRAMS += $(test_programs) $(test_helpers) $(fuzz_programs)
EXTRA_DIST += $(test_scripts)

TEST_EXTENSIONS = .sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
SH_LOG_COMPILER = $(SHELL)
LOG_COMPILER = $(SHELL) $(top_srcdir)/tests/run_program
EXTRA_DIST += tests/run_program
AM_TESTS_ENVIRONMENT = \
    CK_TAP_LOG_FILE_NAME=-; export CK_TAP_LOG_FILE_NAME; \
    CK_VERBOSITY=silent; export CK_VERBOSITY; \
    CK_TIMEOUT_MULTIPLIER=$(TEST_TIMEOUT_MULTIPLIER); export CK_TIMEOUT_MULTIPLIER; \
    UBSAN_OPTIONS=print_stacktrace=1; export UBSAN_OPTIONS; \
    TSAN_OPTIONS=suppressions='$(abs_top_srcdir)/tests/tsan.supp'; export TSAN_OPTIONS; \
    OPENBLAS_NUM_THREADS=1; export OPENBLAS_NUM_THREADS; \
    top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
    top_builddir='$(abs_top_builddir)'; export top_builddir;

third_party_libs = $(NNG_LIBS) $(EV_LIBS) $(PROTOBUF_C_LIBS) $(BLAS_LIBS) $(YAML_LIBS) \
    $(JANSSON_LIBS) $(XML_LIBS) $(SMARTCOLS_LIBS) $(CHECK_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

check_LIBRARIES += tests/libtesting.a
tests_libtesting_a_SOURCES = tests/runner.c tests/runner.h \
    tests/cases.c tests/cases.h tests/definition.c tests/definition.h \
    tests/generate.c tests/generate.h tests/plans.c tests/plans.h \
    tests/symbolic.c tests/symbolic.h tests/symbols.c tests/symbols.h tests/symbols_case.c

# What a test program links with unless it says otherwise.
LDADD = tests/libtesting.a $(rank_libs) daemon/libcore.a client/libclient.la \
    yaml/libyamltree.la $(base_libs) $(third_party_libs)

# The same sources with the deliberate errors of common/mutation.h compiled in, and those of plans,
# which the linker puts between plan_create() and its callers.
check_LIBRARIES += tests/libmutated.a
tests_libmutated_a_SOURCES = \
    tests/mutations/changes.h \
    tests/mutations/edit.c \
    tests/mutations/edit.h \
    tests/mutations/extras.c \
    tests/mutations/messages.c \
    tests/mutations/mutations.c \
    tests/mutations/mutations.h \
    tests/mutations/rectangles.c \
    tests/mutations/steps.c \
    tests/mutations/table.c \
    tests/mutations/waits.c \
    $(judge_sources) $(kernels_sources) $(transport_sources) $(rank_sources)
tests_libmutated_a_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS) -DCPATTN_MUTATIONS
mutated_libs = tests/libtesting.a tests/libmutated.a $(base_libs) $(third_party_libs)
mutated_ldflags = $(AM_LDFLAGS) -Wl,--wrap=plan_create
undiagnosed = tests/mutations/undiagnosed.c
undiagnosed_ldflags = -Wl,--wrap=job_diagnose

# A fuzz target reads its corpus in `make check`, and takes orders from libFuzzer with --enable-fuzz.
if FUZZ
fuzz_libs = $(FUZZ_ENGINE) $(LDADD)
TESTS = $(test_programs) $(test_scripts)
else
check_LIBRARIES += tests/libreplay.a
tests_libreplay_a_SOURCES = tests/fuzz_replay.c
fuzz_libs = tests/libreplay.a $(LDADD)
TESTS = $(test_programs) $(fuzz_programs) $(test_scripts)
endif
EXTRA_DIST += tests/corpus tests/tsan.supp tests/fuzz_campaign

# The installed header, libraries and pkg-config file serve a stranger, linked either way.
EXTRA_DIST += tests/consumer.c
CLEANFILES += tests/consumer tests/consumer-static
consumer_flags = PKG_CONFIG_PATH=$(DESTDIR)$(pkgconfigdir) $(PKG_CONFIG) \
    --define-variable=libdir=$(DESTDIR)$(libdir) --define-variable=includedir=$(DESTDIR)$(includedir)
installcheck-local:
	$(CC) $(CFLAGS) $(INSTRUMENT_CFLAGS) -o tests/consumer $(top_srcdir)/tests/consumer.c \
	    `$(consumer_flags) --cflags --libs cpattn` $(INSTRUMENT_LDFLAGS)
	LD_LIBRARY_PATH=$(DESTDIR)$(libdir) tests/consumer
	$(CC) $(CFLAGS) $(INSTRUMENT_CFLAGS) -o tests/consumer-static $(top_srcdir)/tests/consumer.c \
	    `$(consumer_flags) --cflags cpattn` $(DESTDIR)$(libdir)/libcpattn.a \
	    `$(consumer_flags) --static --libs cpattn | $(SED) 's/-lcpattn//'` $(INSTRUMENT_LDFLAGS)
	tests/consumer-static
	if test -n '$(OBJCOPY)'; then \
	    ! $(NM) --extern-only --defined-only $(DESTDIR)$(libdir)/libcpattn.a | \
	        grep -v -e ' cpattn_[a-z]' -e ':$$' -e '^$$'; \
	fi

# ---- the tests --------------------------------------------------------------------------------------

test_programs += tests/test_common
tests_test_common_SOURCES = tests/test_common.c

test_programs += tests/test_channel
tests_test_channel_SOURCES = tests/test_channel.c

fuzz_programs += tests/fuzz_channel
tests_fuzz_channel_SOURCES = tests/fuzz_channel.c
tests_fuzz_channel_LDADD = $(fuzz_libs)

test_programs += tests/test_yaml
tests_test_yaml_SOURCES = tests/test_yaml.c
tests_test_yaml_LDADD = tests/libtesting.a yaml/libyamltree.la $(third_party_libs)

test_programs += tests/test_transport
tests_test_transport_SOURCES = tests/test_transport.c

test_scripts += tests/test_exports.sh
test_scripts += tests/test_unit.sh
test_scripts += tests/test_settings.sh
test_scripts += tests/test_layering.sh

test_programs += tests/test_matrix
tests_test_matrix_SOURCES = tests/test_matrix.c
tests_test_matrix_LDADD = tests/libtesting.a $(submit_libs) $(third_party_libs)

test_programs += tests/test_matrix_rules
tests_test_matrix_rules_SOURCES = tests/test_matrix_rules.c
tests_test_matrix_rules_LDADD = tests/libtesting.a $(submit_libs) $(third_party_libs)
EXTRA_DIST += tests/transformer_engine.txt

test_programs += tests/test_timeline
tests_test_timeline_SOURCES = tests/test_timeline.c
tests_test_timeline_CPPFLAGS = $(AM_CPPFLAGS) $(XML_CFLAGS)
tests_test_timeline_LDADD = tests/libtesting.a $(submit_libs) $(third_party_libs)

wire_samples = tests/wire_samples.c tests/wire_samples.h

test_programs += tests/test_wire
tests_test_wire_SOURCES = tests/test_wire.c $(wire_samples)
tests_test_wire_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=free

test_programs += tests/test_wire_schema
tests_test_wire_schema_SOURCES = tests/test_wire_schema.c

test_programs += tests/test_wire_attend
tests_test_wire_attend_SOURCES = tests/test_wire_attend.c

test_programs += tests/test_wire_requests
tests_test_wire_requests_SOURCES = tests/test_wire_requests.c $(wire_samples)

test_programs += tests/test_wire_hostile
tests_test_wire_hostile_SOURCES = tests/test_wire_hostile.c $(wire_samples)

fuzz_programs += tests/fuzz_request
tests_fuzz_request_SOURCES = tests/fuzz_request.c
tests_fuzz_request_LDADD = $(fuzz_libs)

fuzz_programs += tests/fuzz_reply
tests_fuzz_reply_SOURCES = tests/fuzz_reply.c
tests_fuzz_reply_LDADD = $(fuzz_libs)

# Writes the first files of tests/corpus/request and tests/corpus/reply; run by hand.
test_helpers += tests/corpus_seeds
tests_corpus_seeds_SOURCES = tests/corpus_seeds.c $(wire_samples)

# Stands in for the daemon; answers as the label of a case asks.
test_helpers += tests/fake_daemon
tests_fake_daemon_SOURCES = tests/fake_daemon.c $(wire_samples)

test_programs += tests/test_client_cases
tests_test_client_cases_SOURCES = tests/test_client_cases.c

test_programs += tests/test_client
tests_test_client_SOURCES = tests/test_client.c tests/fake.c tests/fake.h

test_programs += tests/test_client_faults
tests_test_client_faults_SOURCES = tests/test_client_faults.c tests/fake.c tests/fake.h
tests_test_client_faults_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc

test_programs += tests/test_case
tests_test_case_SOURCES = tests/test_case.c

test_programs += tests/test_cost
tests_test_cost_SOURCES = tests/test_cost.c

test_programs += tests/test_case_fields
tests_test_case_fields_SOURCES = tests/test_case_fields.c

test_programs += tests/test_support
tests_test_support_SOURCES = tests/test_support.c

test_programs += tests/test_shard
tests_test_shard_SOURCES = tests/test_shard.c

test_programs += tests/test_layout
tests_test_layout_SOURCES = tests/test_layout.c tests/layout.c tests/layout.h

test_programs += tests/test_access
tests_test_access_SOURCES = tests/test_access.c tests/touches.c tests/touches.h

test_programs += tests/test_bias
tests_test_bias_SOURCES = tests/test_bias.c

test_programs += tests/test_builder
tests_test_builder_SOURCES = tests/test_builder.c

test_programs += tests/test_plan
tests_test_plan_SOURCES = tests/test_plan.c
tests_test_plan_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc,--wrap=reallocarray

test_programs += tests/test_plan_check
tests_test_plan_check_SOURCES = tests/test_plan_check.c

test_programs += tests/test_plan_ring
tests_test_plan_ring_SOURCES = tests/test_plan_ring.c

test_programs += tests/test_plan_mutations
tests_test_plan_mutations_SOURCES = tests/test_plan_mutations.c
tests_test_plan_mutations_LDADD = $(mutated_libs)
tests_test_plan_mutations_LDFLAGS = $(mutated_ldflags)

test_programs += tests/test_inputs
tests_test_inputs_SOURCES = tests/test_inputs.c

test_programs += tests/test_vector
tests_test_vector_SOURCES = tests/test_vector.c

test_programs += tests/test_weight
tests_test_weight_SOURCES = tests/test_weight.c tests/dense.c tests/dense.h

test_programs += tests/test_reference
tests_test_reference_SOURCES = tests/test_reference.c tests/dense.c tests/dense.h

test_programs += tests/test_attention
tests_test_attention_SOURCES = tests/test_attention.c tests/scene.c tests/scene.h

test_programs += tests/test_logits
tests_test_logits_SOURCES = tests/test_logits.c

test_programs += tests/test_mutated_kernels
tests_test_mutated_kernels_SOURCES = tests/test_mutated_kernels.c tests/scene.c tests/scene.h
tests_test_mutated_kernels_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_test_mutated_kernels_LDADD = $(mutated_libs)
tests_test_mutated_kernels_LDFLAGS = $(mutated_ldflags)

test_programs += tests/test_executor
tests_test_executor_SOURCES = tests/test_executor.c tests/generate.c tests/generate.h

test_programs += tests/test_rules
tests_test_rules_SOURCES = tests/test_rules.c

test_programs += tests/test_power
tests_test_power_SOURCES = tests/test_power.c tests/power.c tests/power.h tests/dense.c tests/dense.h

test_programs += tests/test_tiles
tests_test_tiles_SOURCES = tests/test_tiles.c

test_programs += tests/test_verify
tests_test_verify_SOURCES = tests/test_verify.c

test_programs += tests/test_rank_parts
tests_test_rank_parts_SOURCES = tests/test_rank_parts.c tests/generate.c tests/generate.h

test_programs += tests/test_rank
tests_test_rank_SOURCES = tests/test_rank.c tests/generate.c tests/generate.h tests/world.c \
    tests/world.h

test_programs += tests/test_guest_engine
tests_test_guest_engine_SOURCES = tests/test_guest_engine.c guest/engine.c guest/guest.c guest/tensors.c

test_programs += tests/test_rank_process
tests_test_rank_process_SOURCES = tests/test_rank_process.c

# The command with answers that a sound daemon never gives.
test_helpers += tests/submit_fake
tests_submit_fake_SOURCES = tests/fake_client.c client/submit/main.c
tests_submit_fake_LDADD = client/libsubmit.a yaml/libyamltree.la plan/libplan.la common/libcommon.la \
    $(third_party_libs)

test_programs += tests/test_mutations
tests_test_mutations_SOURCES = tests/test_mutations.c tests/mutations/expected.c \
    tests/mutations/expected.h tests/world.c tests/world.h $(undiagnosed)
tests_test_mutations_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_test_mutations_LDADD = $(mutated_libs)
tests_test_mutations_LDFLAGS = $(mutated_ldflags) $(undiagnosed_ldflags)

test_programs += tests/test_diagnosis
tests_test_diagnosis_SOURCES = tests/test_diagnosis.c tests/mutations/diagnoses.c \
    tests/mutations/diagnoses.h tests/mutations/expected.c tests/mutations/expected.h tests/world.c \
    tests/world.h
tests_test_diagnosis_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_test_diagnosis_LDADD = $(mutated_libs)
tests_test_diagnosis_LDFLAGS = $(mutated_ldflags)

test_programs += tests/test_rounding
tests_test_rounding_SOURCES = tests/test_rounding.c tests/world.c tests/world.h
tests_test_rounding_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_test_rounding_LDADD = $(mutated_libs)
tests_test_rounding_LDFLAGS = $(mutated_ldflags)

random_cases = tests/random_cases.c tests/random_cases.h tests/minimize.c tests/minimize.h \
    tests/world.c tests/world.h

test_programs += tests/test_random_cases
tests_test_random_cases_SOURCES = tests/test_random_cases.c $(random_cases)

test_programs += tests/test_minimize
tests_test_minimize_SOURCES = tests/test_minimize.c $(random_cases) $(undiagnosed)
tests_test_minimize_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_test_minimize_LDADD = $(mutated_libs)
tests_test_minimize_LDFLAGS = $(mutated_ldflags) $(undiagnosed_ldflags)

test_programs += tests/test_waits
tests_test_waits_SOURCES = tests/test_waits.c tests/world.c tests/world.h
tests_test_waits_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_test_waits_LDADD = $(mutated_libs)
tests_test_waits_LDFLAGS = $(mutated_ldflags)

# Looks into JSON and XML for script tests.
test_helpers += tests/peek
tests_peek_SOURCES = tests/peek.c
tests_peek_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(XML_CFLAGS)
tests_peek_LDADD = $(JANSSON_LIBS) $(XML_LIBS)

test_scripts += tests/test_bench_runs.sh
test_scripts += tests/test_matrix_runs.sh
test_scripts += tests/test_report.sh
test_scripts += tests/test_submit.sh
test_scripts += tests/test_submit_daemon.sh
test_scripts += tests/test_submit_remote.sh
test_scripts += tests/test_completion.sh
test_scripts += tests/test_full.sh
test_scripts += tests/test_examples.sh
test_scripts += tests/test_python.sh
test_scripts += tests/test_wheel.sh
test_scripts += tests/test_guests.sh
test_scripts += tests/test_guest_rings.sh
test_scripts += tests/test_ring_page.sh
EXTRA_DIST += tests/guest_faults.py tests/guest_packed.py tests/guest_rings.py
test_scripts += tests/test_transformer_engine.sh
test_scripts += tests/test_without_amx.sh
EXTRA_DIST += tests/tap.sh

# The pool core: row by row, and in simulated lives (tests/test_sim --help).
core_fixture = tests/core_fixture.c tests/core_fixture.h
core_libs = tests/libtesting.a daemon/libcore.a common/libcommon.la $(CHECK_LIBS) $(PTHREAD_LIBS)
test_programs += tests/test_core
tests_test_core_SOURCES = tests/test_core.c $(core_fixture)
tests_test_core_LDADD = $(core_libs)

test_programs += tests/test_core_schedule
tests_test_core_schedule_SOURCES = tests/test_core_schedule.c $(core_fixture)
tests_test_core_schedule_LDADD = $(core_libs)

test_programs += tests/test_core_turns
tests_test_core_turns_SOURCES = tests/test_core_turns.c $(core_fixture)
tests_test_core_turns_LDADD = $(core_libs)

test_programs += tests/test_core_spares
tests_test_core_spares_SOURCES = tests/test_core_spares.c $(core_fixture)
tests_test_core_spares_LDADD = $(core_libs)

test_programs += tests/test_core_spares_room
tests_test_core_spares_room_SOURCES = tests/test_core_spares_room.c $(core_fixture)
tests_test_core_spares_room_LDADD = $(core_libs)

test_programs += tests/test_core_starts
tests_test_core_starts_SOURCES = tests/test_core_starts.c $(core_fixture)
tests_test_core_starts_LDADD = $(core_libs)

test_programs += tests/test_core_stuck
tests_test_core_stuck_SOURCES = tests/test_core_stuck.c $(core_fixture)
tests_test_core_stuck_LDADD = $(core_libs)

test_programs += tests/test_core_guests
tests_test_core_guests_SOURCES = tests/test_core_guests.c $(core_fixture)
tests_test_core_guests_LDADD = $(core_libs)

test_programs += tests/test_core_clients
tests_test_core_clients_SOURCES = tests/test_core_clients.c $(core_fixture)
tests_test_core_clients_LDADD = $(core_libs)

test_programs += tests/test_core_parts
tests_test_core_parts_SOURCES = tests/test_core_parts.c
tests_test_core_parts_LDADD = $(core_libs)
tests_test_core_parts_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc

test_programs += tests/test_core_deadline
tests_test_core_deadline_SOURCES = tests/test_core_deadline.c $(core_fixture)
tests_test_core_deadline_LDADD = $(core_libs)

test_programs += tests/test_sim
tests_test_sim_SOURCES = \
    tests/test_sim.c \
    tests/sim/judge.c \
    tests/sim/ranks.c \
    tests/sim/record.c \
    tests/sim/record.h \
    tests/sim/sim.h \
    tests/sim/standby.c \
    tests/sim/stuck.c \
    tests/sim/trace.c \
    tests/sim/turns.c \
    tests/sim/world.c
tests_test_sim_LDADD = $(core_libs)
EXTRA_DIST += tests/sim/seeds

# The socket of the daemon: the wire as bytes, and the server with clients made by hand.
test_programs += tests/test_frame
tests_test_frame_SOURCES = tests/test_frame.c
tests_test_frame_LDADD = tests/libtesting.a daemon/libserver.a $(CHECK_LIBS) $(PTHREAD_LIBS)

fuzz_programs += tests/fuzz_frame
tests_fuzz_frame_SOURCES = tests/fuzz_frame.c
tests_fuzz_frame_LDADD = daemon/libserver.a $(fuzz_libs)

server_scene = tests/server_scene.c tests/server_scene.h
server_scene_libs = tests/libtesting.a daemon/libserver.a common/libcommon.la $(EV_LIBS) \
    $(OPENSSL_LIBS) $(CHECK_LIBS) $(PTHREAD_LIBS)
server_scene_flags = $(AM_LDFLAGS) -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc

test_programs += tests/test_server
tests_test_server_SOURCES = tests/test_server.c $(server_scene)
tests_test_server_LDADD = $(server_scene_libs)
tests_test_server_LDFLAGS = $(server_scene_flags)

test_programs += tests/test_turns
tests_test_turns_SOURCES = tests/test_turns.c
tests_test_turns_LDADD = tests/libtesting.a daemon/libserver.a common/libcommon.la $(CHECK_LIBS) $(PTHREAD_LIBS)

test_programs += tests/test_server_limits
tests_test_server_limits_SOURCES = tests/test_server_limits.c $(server_scene)
tests_test_server_limits_LDADD = $(server_scene_libs)
tests_test_server_limits_LDFLAGS = $(server_scene_flags)

test_programs += tests/test_answer_cache
tests_test_answer_cache_SOURCES = tests/test_answer_cache.c daemon/service/answer_cache.c
tests_test_answer_cache_LDADD = tests/libtesting.a $(CHECK_LIBS) $(PTHREAD_LIBS)

# The real daemon: with the real ranks, with ranks that misbehave, with clients that do.
daemon_fixture = tests/daemon_fixture.c tests/daemon_fixture.h
daemon_fixture_libs = tests/libtesting.a $(base_libs) $(NNG_LIBS) $(PROTOBUF_C_LIBS) $(CHECK_LIBS) \
    $(PTHREAD_LIBS) $(MATH_LIBS)

test_programs += tests/test_daemon
tests_test_daemon_SOURCES = tests/test_daemon.c $(daemon_fixture)
tests_test_daemon_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_daemon_life
tests_test_daemon_life_SOURCES = tests/test_daemon_life.c $(daemon_fixture)
tests_test_daemon_life_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_gpus
tests_test_gpus_SOURCES = tests/test_gpus.c \
    daemon/machine/gpus.c daemon/machine/gpus.h daemon/process/probe.c daemon/process/probe.h \
    daemon/process/spawn.c daemon/process/spawn.h daemon/process/confine.c daemon/process/confine.h daemon/process/proc.c daemon/process/proc.h

test_programs += tests/test_time_bounds
tests_test_time_bounds_SOURCES = tests/test_time_bounds.c daemon/machine/time_bounds.c daemon/machine/time_bounds.h

test_programs += tests/test_daemon_deadline
tests_test_daemon_deadline_SOURCES = tests/test_daemon_deadline.c \
    daemon/machine/time_bounds.c daemon/machine/time_bounds.h daemon/machine/host.c daemon/machine/host.h $(daemon_fixture)
tests_test_daemon_deadline_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_daemon_gpus
tests_test_daemon_gpus_SOURCES = tests/test_daemon_gpus.c $(daemon_fixture)
tests_test_daemon_gpus_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_daemon_ranks
tests_test_daemon_ranks_SOURCES = tests/test_daemon_ranks.c $(daemon_fixture)
tests_test_daemon_ranks_LDADD = $(daemon_fixture_libs)
test_programs += tests/test_daemon_spares
tests_test_daemon_spares_SOURCES = tests/test_daemon_spares.c $(daemon_fixture)
tests_test_daemon_spares_LDADD = $(daemon_fixture_libs)
test_programs += tests/test_daemon_stuck
tests_test_daemon_stuck_SOURCES = tests/test_daemon_stuck.c $(daemon_fixture)
tests_test_daemon_stuck_LDADD = $(daemon_fixture_libs)
test_programs += tests/test_daemon_limits
tests_test_daemon_limits_SOURCES = tests/test_daemon_limits.c $(daemon_fixture)
tests_test_daemon_limits_LDADD = $(daemon_fixture_libs)
test_programs += tests/test_daemon_rank_user
tests_test_daemon_rank_user_SOURCES = tests/test_daemon_rank_user.c $(daemon_fixture)
tests_test_daemon_rank_user_LDADD = $(daemon_fixture_libs)
test_helpers += tests/odd_rank
tests_odd_rank_SOURCES = tests/odd_rank.c
tests_odd_rank_LDADD = $(daemon_fixture_libs)

# The real rank program, which misbehaves when it is ordered to (common/fault.h).
test_helpers += tests/faulty_rank
tests_faulty_rank_SOURCES = rank/main.c common/fault.c common/fault.h $(rank_sources)
tests_faulty_rank_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS) -DCPATTN_FAULTS
tests_faulty_rank_LDADD = judge/libjudge.a kernels/libkernels.a transport/libtransport.a plan/libplan.la \
    common/libcommon.la $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

test_programs += tests/test_fault_matrix
fault_scene = tests/fault_scene.c tests/fault_scene.h tests/raw_client.c tests/raw_client.h \
    daemon/process/proc.c daemon/process/proc.h
tests_test_fault_matrix_SOURCES = tests/test_fault_matrix.c $(fault_scene)
tests_test_fault_matrix_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_fault_spares
tests_test_fault_spares_SOURCES = tests/test_fault_spares.c $(fault_scene)
tests_test_fault_spares_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_environment
tests_test_environment_SOURCES = tests/test_environment.c tests/raw_client.c tests/raw_client.h \
    $(daemon_fixture)
tests_test_environment_LDADD = $(daemon_fixture_libs)

# Stands in front of the C library's allocator, for all libraries.
test_programs += tests/test_torture
tests_test_torture_SOURCES = tests/test_torture.c $(wire_samples)
tests_test_torture_LDADD = tests/libtesting.a $(submit_libs) daemon/libcore.a $(base_libs) \
    $(third_party_libs)

test_programs += tests/test_failing_calls
tests_test_failing_calls_SOURCES = tests/test_failing_calls.c tests/raw_client.c tests/raw_client.h
tests_test_failing_calls_LDADD = $(daemon_fixture_libs)
check_LTLIBRARIES += tests/fail_calls.la
tests_fail_calls_la_SOURCES = tests/fail_calls.c
tests_fail_calls_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere

# Providers: a toy, and what can be wrong with one.
toys = tests/toy.la tests/toy_merges.la tests/toy_scale.la tests/toy_crashes.la tests/toy_fails.la \
    tests/toy_causal.la tests/toy_moods.la
toy_ldflags = -module -avoid-version -shared -rpath /nowhere
check_LTLIBRARIES += $(toys)
tests_toy_la_SOURCES = tests/providers/toy.c
tests_toy_la_LDFLAGS = $(toy_ldflags)
tests_toy_la_LIBADD = $(MATH_LIBS)
tests_toy_merges_la_SOURCES = tests/providers/toy.c
tests_toy_merges_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_MERGES
tests_toy_merges_la_LDFLAGS = $(toy_ldflags)
tests_toy_merges_la_LIBADD = $(MATH_LIBS)
tests_toy_scale_la_SOURCES = tests/providers/toy.c
tests_toy_scale_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_WRONG_SCALE
tests_toy_scale_la_LDFLAGS = $(toy_ldflags)
tests_toy_scale_la_LIBADD = $(MATH_LIBS)
tests_toy_crashes_la_SOURCES = tests/providers/toy.c
tests_toy_crashes_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_CRASHES
tests_toy_crashes_la_LDFLAGS = $(toy_ldflags)
tests_toy_crashes_la_LIBADD = $(MATH_LIBS)
tests_toy_fails_la_SOURCES = tests/providers/toy.c
tests_toy_fails_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_FAILS
tests_toy_fails_la_LDFLAGS = $(toy_ldflags)
tests_toy_fails_la_LIBADD = $(MATH_LIBS)
tests_toy_causal_la_SOURCES = tests/providers/toy.c
tests_toy_causal_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_CAUSAL_ONLY
tests_toy_causal_la_LDFLAGS = $(toy_ldflags)
tests_toy_causal_la_LIBADD = $(MATH_LIBS)
tests_toy_moods_la_SOURCES = tests/providers/toy.c
tests_toy_moods_la_CPPFLAGS = $(AM_CPPFLAGS) -DTOY_MOODS
tests_toy_moods_la_LDFLAGS = $(toy_ldflags)
tests_toy_moods_la_LIBADD = $(MATH_LIBS)
test_scripts += tests/test_provider.sh
test_programs += tests/test_own
tests_test_own_SOURCES = tests/test_own.c
test_programs += tests/test_groups
tests_test_groups_SOURCES = tests/test_groups.c

test_programs += tests/test_daemon_clients
tests_test_daemon_clients_SOURCES = tests/test_daemon_clients.c $(daemon_fixture)
tests_test_daemon_clients_LDADD = $(daemon_fixture_libs)
test_programs += tests/test_daemon_again
tests_test_daemon_again_SOURCES = tests/test_daemon_again.c $(daemon_fixture)
tests_test_daemon_again_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_daemon_users
tests_test_daemon_users_SOURCES = tests/test_daemon_users.c $(daemon_fixture)
tests_test_daemon_users_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_daemon_socket
tests_test_daemon_socket_SOURCES = tests/test_daemon_socket.c $(daemon_fixture)
tests_test_daemon_socket_LDADD = $(daemon_fixture_libs)

# Clients over a network.
net_client = tests/net_client.c tests/net_client.h
test_programs += tests/test_daemon_tcp
tests_test_daemon_tcp_SOURCES = tests/test_daemon_tcp.c $(net_client) $(daemon_fixture)
tests_test_daemon_tcp_LDADD = $(daemon_fixture_libs)

if TLS
certificates = tests/certificates.c tests/certificates.h
tls_scene = tests/tls_scene.c tests/tls_scene.h $(certificates) $(net_client) $(daemon_fixture)
test_programs += tests/test_daemon_certificates
tests_test_daemon_certificates_SOURCES = tests/test_daemon_certificates.c $(tls_scene)
tests_test_daemon_certificates_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_test_daemon_certificates_LDADD = $(daemon_fixture_libs) $(OPENSSL_LIBS)

test_programs += tests/test_daemon_subjects
tests_test_daemon_subjects_SOURCES = tests/test_daemon_subjects.c $(tls_scene)
tests_test_daemon_subjects_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_test_daemon_subjects_LDADD = $(daemon_fixture_libs) $(OPENSSL_LIBS)

test_programs += tests/test_daemon_tls
tests_test_daemon_tls_SOURCES = tests/test_daemon_tls.c $(tls_scene)
tests_test_daemon_tls_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_test_daemon_tls_LDADD = $(daemon_fixture_libs) $(OPENSSL_LIBS)

test_programs += tests/test_client_remote
tests_test_client_remote_SOURCES = tests/test_client_remote.c $(certificates) $(net_client) \
    $(daemon_fixture)
tests_test_client_remote_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_test_client_remote_LDADD = client/libclient.la $(daemon_fixture_libs) $(OPENSSL_LIBS)
endif

test_helpers += tests/early_client
tests_early_client_SOURCES = tests/early_client.c
tests_early_client_LDADD = $(daemon_fixture_libs)

test_programs += tests/test_words
tests_test_words_SOURCES = tests/test_words.c
tests_test_words_LDADD = tests/libtesting.a $(submit_libs) $(third_party_libs)

fuzz_programs += tests/fuzz_matrix
tests_fuzz_matrix_SOURCES = tests/fuzz_matrix.c
tests_fuzz_matrix_LDADD = client/libsubmit.a yaml/libyamltree.la $(fuzz_libs)

fuzz_programs += tests/fuzz_safetensors
tests_fuzz_safetensors_SOURCES = tests/fuzz_safetensors.c
tests_fuzz_safetensors_LDADD = client/libsubmit.a $(fuzz_libs) $(JANSSON_LIBS)

test_programs += tests/test_safetensors
tests_test_safetensors_SOURCES = tests/test_safetensors.c
tests_test_safetensors_LDADD = tests/libtesting.a $(submit_libs) $(third_party_libs)

test_programs += tests/test_attend
tests_test_attend_SOURCES = tests/test_attend.c $(daemon_fixture)
tests_test_attend_LDADD = $(LDADD)

test_programs += tests/test_deposits
tests_test_deposits_SOURCES = tests/test_deposits.c $(daemon_fixture)

# A rank that computes wrongly.
test_helpers += tests/wrong_rank
tests_wrong_rank_SOURCES = tests/wrong_rank.c
tests_wrong_rank_CPPFLAGS = $(AM_CPPFLAGS) -DCPATTN_MUTATIONS
tests_wrong_rank_LDADD = $(mutated_libs)
tests_wrong_rank_LDFLAGS = $(mutated_ldflags)
test_scripts += tests/test_submit_tensors.sh

test_programs += tests/test_source
tests_test_source_SOURCES = tests/test_source.c

fuzz_programs += tests/fuzz_config
tests_fuzz_config_SOURCES = tests/fuzz_config.c \
    $(settings_sources)
tests_fuzz_config_LDADD = yaml/libyamltree.la $(fuzz_libs)

fuzz_programs += tests/fuzz_core
tests_fuzz_core_SOURCES = tests/fuzz_core.c tests/fuzz_core_world.c tests/fuzz_core_world.h
tests_fuzz_core_LDADD = $(fuzz_libs)

# Host code of the CUDA backend that needs no CUDA.
test_programs += tests/test_worklist
tests_test_worklist_SOURCES = tests/test_worklist.c tests/drawn_slices.c tests/drawn_slices.h \
    kernels/cuda/worklist.c kernels/cuda/worklist.h kernels/cuda/intervals.c kernels/cuda/intervals.h

test_programs += tests/test_worklist_backward
tests_test_worklist_backward_SOURCES = tests/test_worklist_backward.c \
    tests/drawn_slices.c tests/drawn_slices.h \
    kernels/cuda/worklist_backward.c kernels/cuda/worklist_backward.h \
    kernels/cuda/intervals.c kernels/cuda/intervals.h

test_programs += tests/test_check
tests_test_check_SOURCES = tests/test_check.c
tests_test_check_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
tests_test_check_LDADD = check/libcheck.la $(LDADD)
test_programs += tests/test_check_device
tests_test_check_device_SOURCES = tests/test_check_device.c
tests_test_check_device_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/client
tests_test_check_device_LDADD = check/libcheck.la $(LDADD)

# What programs that are compiled already find in the library.
test_programs += tests/test_abi
tests_test_abi_SOURCES = tests/test_abi.c
EXTRA_DIST += tests/exported.txt

test_programs += tests/test_amx
tests_test_amx_SOURCES = tests/test_amx.c

test_programs += tests/test_expected
tests_test_expected_SOURCES = tests/test_expected.c
