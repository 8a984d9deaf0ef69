# SPDX-License-Identifier: Apache-2.0
test_programs += tests/common/test_common
tests_common_test_common_SOURCES = tests/common/test_common.c

test_programs += tests/common/test_shell_word
tests_common_test_shell_word_SOURCES = tests/common/test_shell_word.c

test_programs += tests/common/test_channel
tests_common_test_channel_SOURCES = tests/common/test_channel.c

test_programs += tests/common/test_yaml
tests_common_test_yaml_SOURCES = tests/common/test_yaml.c
tests_common_test_yaml_LDADD = tests/support/libtesting.a yaml/libyamltree.la $(third_party_libs)

# Replaces the C library's allocator, also for shared libraries.
test_programs += tests/common/test_torture
tests_common_test_torture_SOURCES = tests/common/test_torture.c $(wire_samples)
tests_common_test_torture_LDADD = tests/support/libtesting.a $(submit_libs) daemon/libcore.a $(base_libs) \
    $(third_party_libs)

test_programs += tests/common/test_journal
tests_common_test_journal_SOURCES = tests/common/test_journal.c
