# SPDX-License-Identifier: Apache-2.0
EXTRA_DIST += tests/fuzz/accepted tests/fuzz/corpus tests/fuzz/fuzz_campaign tests/fuzz/fuzz_target.h

fuzz_programs += tests/fuzz/fuzz_channel
tests_fuzz_fuzz_channel_SOURCES = tests/fuzz/fuzz_channel.c
tests_fuzz_fuzz_channel_LDADD = $(fuzz_libs)

fuzz_programs += tests/fuzz/fuzz_request
tests_fuzz_fuzz_request_SOURCES = tests/fuzz/fuzz_request.c
tests_fuzz_fuzz_request_LDADD = $(fuzz_libs)

fuzz_programs += tests/fuzz/fuzz_reply
tests_fuzz_fuzz_reply_SOURCES = tests/fuzz/fuzz_reply.c
tests_fuzz_fuzz_reply_LDADD = $(fuzz_libs)

# Writes the initial files of tests/fuzz/corpus/request and tests/fuzz/corpus/reply. Run it by hand.
test_helpers += tests/fuzz/corpus_seeds
tests_fuzz_corpus_seeds_SOURCES = tests/fuzz/corpus_seeds.c $(wire_samples)

fuzz_programs += tests/fuzz/fuzz_frame
tests_fuzz_fuzz_frame_SOURCES = tests/fuzz/fuzz_frame.c
tests_fuzz_fuzz_frame_LDADD = daemon/libserver.a $(fuzz_libs)

fuzz_programs += tests/fuzz/fuzz_node
tests_fuzz_fuzz_node_SOURCES = tests/fuzz/fuzz_node.c daemon/nodes/node_link.c daemon/nodes/node_link.h \
    daemon/nodes/node_wire.c daemon/nodes/node_wire.h
tests_fuzz_fuzz_node_LDADD = daemon/libserver.a $(fuzz_libs) $(EV_LIBS) $(OPENSSL_LIBS)

fuzz_programs += tests/fuzz/fuzz_matrix
tests_fuzz_fuzz_matrix_SOURCES = tests/fuzz/fuzz_matrix.c
tests_fuzz_fuzz_matrix_LDADD = client/libsubmit.a yaml/libyamltree.la $(fuzz_libs)

fuzz_programs += tests/fuzz/fuzz_safetensors
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c
tests_fuzz_fuzz_safetensors_LDADD = client/libsubmit.a $(fuzz_libs) $(JANSSON_LIBS)

fuzz_programs += tests/fuzz/fuzz_config
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c \
    $(settings_sources)
tests_fuzz_fuzz_config_LDADD = yaml/libyamltree.la $(fuzz_libs)

fuzz_programs += tests/fuzz/fuzz_core
tests_fuzz_fuzz_core_SOURCES = tests/fuzz/fuzz_core.c tests/fuzz/fuzz_core_world.c \
    tests/fuzz/fuzz_core_world.h
tests_fuzz_fuzz_core_LDADD = $(fuzz_libs)
