# SPDX-License-Identifier: Apache-2.0
# Benchmarks on a device, built by `make bench` like the others:
#     cuda_bench_programs += bench/cuda/bench_thing
# with _SOURCES, and _CPPFLAGS and _LDADD as the tests in tests/cuda have them.
cuda_bench_programs =

if CUDA
bench_programs += $(cuda_bench_programs)
endif
