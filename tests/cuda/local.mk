# SPDX-License-Identifier: Apache-2.0
# Tests on a device. Without a device a program ends with status 77, and `make check` reports it as
# skipped. The programs use only libraries that a bare GPU node has. To add one:
#     cuda_test_programs += tests/cuda/test_thing
#     tests_cuda_test_thing_SOURCES = tests/cuda/test_thing.c
#     tests_cuda_test_thing_CPPFLAGS = $(cuda_test_cppflags)
#     tests_cuda_test_thing_LDADD = $(cuda_test_libs)
# Only `if CUDA` at the end of this file adds the programs to the lists of automake: a build without
# CUDA must not compile them.
cuda_test_programs =
cuda_test_cppflags = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS)
cuda_test_libs = judge/cuda/libjudgecuda.a judge/libjudge.a kernels/cuda/libkernelscuda.a \
    kernels/libkernels.a \
    common/cuda/libcommoncuda.a plan/libplan.la common/libcommon.la \
    $(CUDA_LIBS) $(BLAS_LIBS) $(PTHREAD_LIBS) $(MATH_LIBS)

harness_sources = tests/cuda/harness.c tests/cuda/harness.h
problem_sources = tests/cuda/problem.c tests/cuda/problem.h
reference_scene_sources = tests/cuda/reference_scene.c tests/cuda/reference_scene.h

cuda_test_programs += tests/cuda/test_ops_cuda
tests_cuda_test_ops_cuda_SOURCES = tests/cuda/test_ops_cuda.c $(harness_sources)
tests_cuda_test_ops_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_ops_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_collective_cuda
tests_cuda_test_collective_cuda_SOURCES = tests/cuda/test_collective_cuda.c $(harness_sources)
tests_cuda_test_collective_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_collective_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_linear_cuda
tests_cuda_test_linear_cuda_SOURCES = tests/cuda/test_linear_cuda.c $(harness_sources)
tests_cuda_test_linear_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_linear_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_linear_judge_cuda
tests_cuda_test_linear_judge_cuda_SOURCES = tests/cuda/test_linear_judge_cuda.c $(harness_sources)
tests_cuda_test_linear_judge_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_linear_judge_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_inputs_cuda
tests_cuda_test_inputs_cuda_SOURCES = tests/cuda/test_inputs_cuda.c $(harness_sources) \
    tests/support/generate.c tests/support/generate.h
tests_cuda_test_inputs_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_inputs_cuda_LDADD = rank/librank.a $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_forward_cuda
tests_cuda_test_forward_cuda_SOURCES = tests/cuda/test_forward_cuda.c tests/cuda/forward_trial.c \
    tests/cuda/forward_trial.h $(harness_sources) $(problem_sources)
tests_cuda_test_forward_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_forward_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_folds_cuda
tests_cuda_test_folds_cuda_SOURCES = tests/cuda/test_folds_cuda.c $(harness_sources) $(problem_sources)
tests_cuda_test_folds_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_folds_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_folds_backward_cuda
tests_cuda_test_folds_backward_cuda_SOURCES = tests/cuda/test_folds_backward_cuda.c $(harness_sources) $(problem_sources)
tests_cuda_test_folds_backward_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_folds_backward_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_backward_cuda
tests_cuda_test_backward_cuda_SOURCES = tests/cuda/test_backward_cuda.c $(harness_sources) $(problem_sources)
tests_cuda_test_backward_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_backward_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_world_cuda
tests_cuda_test_world_cuda_SOURCES = tests/cuda/test_world_cuda.c tests/cuda/faulty.c tests/cuda/faulty.h \
    tests/support/world.c tests/support/world.h tests/support/generate.c tests/support/generate.h
tests_cuda_test_world_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_world_cuda_LDADD = $(cuda_rank_libs)

cuda_test_programs += tests/cuda/test_graphs_cuda
tests_cuda_test_graphs_cuda_SOURCES = tests/cuda/test_graphs_cuda.c \
    tests/support/world.c tests/support/world.h tests/support/generate.c tests/support/generate.h
tests_cuda_test_graphs_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_graphs_cuda_LDADD = $(cuda_rank_libs)

cuda_test_programs += tests/cuda/test_reference_cuda
tests_cuda_test_reference_cuda_SOURCES = tests/cuda/test_reference_cuda.c $(harness_sources) $(reference_scene_sources) \
    tests/support/generate.c tests/support/generate.h
tests_cuda_test_reference_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_reference_cuda_LDADD = $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_reference16_cuda
tests_cuda_test_reference16_cuda_SOURCES = tests/cuda/test_reference16_cuda.c $(harness_sources) $(reference_scene_sources) \
    tests/support/generate.c tests/support/generate.h
tests_cuda_test_reference16_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_reference16_cuda_LDADD = $(cuda_test_libs)

# Ranks are threads here, and exchange through a transport of the test.
cuda_test_programs += tests/cuda/test_verify_cuda
tests_cuda_test_verify_cuda_SOURCES = tests/cuda/test_verify_cuda.c $(harness_sources) \
    tests/cuda/local_transport.c tests/cuda/local_transport.h tests/cuda/verify_sample.c \
    tests/cuda/verify_sample.h tests/cuda/verify_workers.c tests/cuda/verify_workers.h \
    tests/support/generate.c tests/support/generate.h
tests_cuda_test_verify_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_verify_cuda_LDADD = rank/cuda/librankcuda.a rank/librank.a \
    transport/libtransport.a $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_check_cuda
tests_cuda_test_check_cuda_SOURCES = tests/cuda/test_check_cuda.c $(harness_sources) \
    tests/cuda/local_transport.c tests/cuda/local_transport.h tests/cuda/verify_sample.c \
    tests/cuda/verify_sample.h tests/cuda/verify_workers.c tests/cuda/verify_workers.h \
    tests/support/figures.c tests/support/figures.h tests/support/generate.c tests/support/generate.h \
    check/cuda/judge.c check/cuda/pack.h
tests_cuda_test_check_cuda_CPPFLAGS = $(cuda_test_cppflags) -I$(top_srcdir)/client
tests_cuda_test_check_cuda_LDADD = check/cuda/pack.$(OBJEXT) rank/cuda/librankcuda.a rank/librank.a \
    transport/libtransport.a check/libcheck.la client/libclient.la $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_check_given_cuda
tests_cuda_test_check_given_cuda_SOURCES = tests/cuda/test_check_given_cuda.c $(harness_sources) \
    tests/support/generate.c tests/support/generate.h check/cuda/judge.c check/cuda/pack.h
tests_cuda_test_check_given_cuda_CPPFLAGS = $(cuda_test_cppflags) -I$(top_srcdir)/client
tests_cuda_test_check_given_cuda_LDADD = check/cuda/pack.$(OBJEXT) rank/librank.a \
    check/libcheck.la client/libclient.la $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_check_jobs_cuda
tests_cuda_test_check_jobs_cuda_SOURCES = tests/cuda/test_check_jobs_cuda.c $(harness_sources) \
    check/cuda/judge.c check/cuda/pack.h
tests_cuda_test_check_jobs_cuda_CPPFLAGS = $(cuda_test_cppflags) -I$(top_srcdir)/client
tests_cuda_test_check_jobs_cuda_LDADD = check/cuda/pack.$(OBJEXT) rank/librank.a \
    check/libcheck.la client/libclient.la $(cuda_test_libs)

cuda_test_programs += tests/cuda/test_given_cuda
tests_cuda_test_given_cuda_SOURCES = tests/cuda/test_given_cuda.c $(harness_sources) \
    tests/support/generate.c tests/support/generate.h
tests_cuda_test_given_cuda_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_test_given_cuda_LDADD = $(cuda_rank_libs)

# A rank program with faults, to test the daemon on a device.
tests_cuda_faulty_rank_SOURCES = tests/cuda/faulty_rank.c tests/cuda/faulty.c tests/cuda/faulty.h
tests_cuda_faulty_rank_CPPFLAGS = $(cuda_test_cppflags)
tests_cuda_faulty_rank_LDADD = $(cuda_rank_libs)

# The executor with a fake CUDA runtime. It needs the toolkit's headers, and no device.
tests_cuda_test_executor_cuda_SOURCES = tests/cuda/test_executor_cuda.c tests/cuda/fake_cuda.c \
    tests/cuda/fake_cuda_backend.c tests/cuda/fake_cuda.h tests/support/world.c tests/support/world.h \
    rank/cuda/choice.c rank/cuda/executor.c rank/cuda/exploration.c rank/cuda/position.c \
    rank/cuda/marks.c rank/cuda/events.c rank/cuda/window.c rank/cuda/timeline.c rank/cuda/graph.c \
    rank/cuda/parcels.c rank/cuda/stamps.c common/cuda/device_arena.c \
    transport/peer.c transport/peer_direct.c transport/peer_exchange.c transport/strided.c transport/agree.c tests/cuda/fake_box.c tests/cuda/fake_graph.c tests/cuda/fake_kernel.c \
    tests/cuda/fake_words.c tests/cuda/fake_stream.h
tests_cuda_test_executor_cuda_CPPFLAGS = $(cuda_test_cppflags)

# The transports of a rank with a fake CUDA runtime that completes each call at once.
tests_cuda_test_exchanges_SOURCES = tests/cuda/test_exchanges.c tests/cuda/prompt_cuda.c \
    tests/cuda/prompt_cuda.h rank/cuda/exchanges.c rank/cuda/choice.c rank/cuda/plans.c \
    rank/cuda/window.c rank/cuda/events.c common/cuda/device_arena.c \
    transport/nccl.c transport/peer.c transport/peer_direct.c transport/peer_exchange.c transport/strided.c transport/agree.c
tests_cuda_test_exchanges_CPPFLAGS = $(cuda_test_cppflags)

tests_cuda_test_device_SOURCES = tests/cuda/test_device.c rank/cuda/device.c transport/agree.c
tests_cuda_test_device_CPPFLAGS = $(cuda_test_cppflags)

tests_cuda_test_device_arena_SOURCES = tests/cuda/test_device_arena.c common/cuda/device_arena.c
tests_cuda_test_device_arena_CPPFLAGS = $(cuda_test_cppflags)

tests_cuda_test_queue_SOURCES = tests/cuda/test_queue.c common/cuda/queue.c
tests_cuda_test_queue_CPPFLAGS = $(cuda_test_cppflags)

tests_cuda_test_given_SOURCES = tests/cuda/test_given.c rank/cuda/given.c
tests_cuda_test_given_CPPFLAGS = $(cuda_test_cppflags)

tests_cuda_test_swap_staged_SOURCES = tests/cuda/test_swap_staged.c rank/cuda/swap_staged.c
tests_cuda_test_swap_staged_CPPFLAGS = $(cuda_test_cppflags)

test_scripts += tests/cuda/test_guests_cuda.sh

if CUDA
test_programs += tests/cuda/test_executor_cuda
test_programs += tests/cuda/test_exchanges
test_programs += tests/cuda/test_given
test_programs += tests/cuda/test_swap_staged
test_programs += tests/cuda/test_device
test_programs += tests/cuda/test_device_arena
test_programs += tests/cuda/test_queue
check_PROGRAMS += tests/cuda/faulty_rank $(cuda_test_programs)
TESTS += $(cuda_test_programs)
endif
