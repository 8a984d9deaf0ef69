# SPDX-License-Identifier: Apache-2.0
# Benchmarks are built by `make bench` and never by `make`.
EXTRA_PROGRAMS = $(bench_programs)
bench_programs =

.PHONY: bench
bench: $(bench_programs)
