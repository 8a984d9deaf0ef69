# SPDX-License-Identifier: Apache-2.0
# Benchmarks on a device. `make bench` builds them if there is the CUDA backend. To add one:
#     cuda_bench_programs += bench/cuda/bench_thing
# and _SOURCES, _CPPFLAGS and _LDADD as in tests/cuda/local.mk.
cuda_bench_programs =
EXTRA_DIST += bench/cuda/beside_context_parallel.py bench/cuda/beside_tensor_parallel.py \
    bench/cuda/beside_torch.py
EXTRA_DIST += bench/cuda/judge_torch.py

cuda_bench_programs += bench/cuda/bench_attention_cuda
bench_cuda_bench_attention_cuda_SOURCES = bench/cuda/bench_attention_cuda.c
bench_cuda_bench_attention_cuda_CPPFLAGS = $(cuda_test_cppflags)
bench_cuda_bench_attention_cuda_LDADD = $(cuda_test_libs)

cuda_bench_programs += bench/cuda/bench_ops_cuda
bench_cuda_bench_ops_cuda_SOURCES = bench/cuda/bench_ops_cuda.c
bench_cuda_bench_ops_cuda_CPPFLAGS = $(cuda_test_cppflags)
bench_cuda_bench_ops_cuda_LDADD = $(cuda_test_libs)

cuda_bench_programs += bench/cuda/bench_launch_cuda
bench_cuda_bench_launch_cuda_SOURCES = bench/cuda/bench_launch_cuda.c tests/support/world.c \
    tests/support/world.h
bench_cuda_bench_launch_cuda_CPPFLAGS = $(cuda_test_cppflags)
bench_cuda_bench_launch_cuda_LDADD = $(cuda_rank_libs)

if CUDA
bench_programs += $(cuda_bench_programs)
endif
