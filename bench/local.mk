# SPDX-License-Identifier: Apache-2.0
# `make bench` builds the benchmarks; `make` does not.
EXTRA_PROGRAMS = $(bench_programs)
bench_programs =
EXTRA_DIST += bench/draw.py bench/softcap_slope.py bench/results

.PHONY: bench
bench: $(bench_programs)

bench_programs += bench/bench_attention
bench_bench_attention_SOURCES = bench/bench_attention.c
bench_bench_attention_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS)
bench_bench_attention_LDADD = kernels/libkernels.a $(base_libs) $(third_party_libs)

bench_programs += bench/bench_roundtrip
bench_bench_roundtrip_SOURCES = bench/bench_roundtrip.c bench/measure.c bench/measure.h
bench_bench_roundtrip_LDADD = client/libclient.la $(base_libs) $(third_party_libs)

# Random faults for a set time.
bench_programs += bench/soak
bench_soak_SOURCES = bench/soak.c bench/soak_client.c bench/soak_client.h bench/soak_process.c \
    bench/soak_process.h bench/soak_report.c bench/soak_report.h bench/soak_state.c bench/soak_state.h \
    bench/spread.c bench/spread.h tests/support/raw_client.c tests/support/raw_client.h \
    tests/support/children.h
bench_soak_LDADD = tests/support/libtesting.a $(base_libs) $(third_party_libs)

# The time that faults and a flooded queue take.
bench_programs += bench/bench_faults
bench_bench_faults_SOURCES = bench/bench_faults.c bench/measure.c bench/measure.h \
    tests/support/raw_client.c tests/support/raw_client.h \
    tests/support/children.c tests/support/children.h
bench_bench_faults_LDADD = $(base_libs) $(third_party_libs)

# The cost of ranks on other hosts.
bench_programs += bench/bench_hosts
bench_bench_hosts_SOURCES = bench/bench_hosts.c tests/nodes/hosts_fixture.c tests/nodes/hosts_fixture.h \
    $(daemon_fixture)
bench_bench_hosts_LDADD = $(daemon_fixture_libs)

# Ranks on other hosts under Slurm, with faults of Slurm's daemons.
EXTRA_DIST += bench/slurm_faults bench/slurm_cluster

# The smallest errors that verdicts detect.
bench_programs += bench/verdict_power
bench_verdict_power_SOURCES = bench/verdict_power.c tests/judge/power.c tests/judge/power.h \
    tests/judge/dense.c \
    tests/judge/dense.h tests/support/definition.c tests/support/definition.h
bench_verdict_power_LDADD = judge/libjudge.a $(base_libs) $(third_party_libs)
