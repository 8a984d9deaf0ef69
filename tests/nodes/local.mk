# SPDX-License-Identifier: Apache-2.0
# A daemon with agents that act as other hosts, over the loopback interface.
long_programs += tests/nodes/test_hosts
tests_nodes_test_hosts_SOURCES = tests/nodes/test_hosts.c tests/nodes/hosts_fixture.c \
    tests/nodes/hosts_fixture.h $(daemon_fixture)
tests_nodes_test_hosts_LDADD = $(daemon_fixture_libs)

test_scripts += tests/nodes/test_nodes_doc.sh
long_scripts += tests/nodes/test_namespaces.sh
test_scripts += tests/nodes/test_fault_hosts.sh

# Faults on several hosts. `tests/nodes/test_node_faults all` runs all of them, as a benchmark.
test_programs += tests/nodes/test_node_faults
tests_nodes_test_node_faults_SOURCES = tests/nodes/test_node_faults.c tests/nodes/node_scene.c \
    tests/nodes/node_scene.h tests/support/raw_client.c tests/support/raw_client.h
tests_nodes_test_node_faults_LDADD = $(daemon_fixture_libs)

if TLS
test_programs += tests/nodes/test_hosts_tls
tests_nodes_test_hosts_tls_SOURCES = tests/nodes/test_hosts_tls.c tests/nodes/hosts_fixture.c \
    tests/nodes/hosts_fixture.h tests/daemon/certificates.c tests/daemon/certificates.h $(daemon_fixture)
tests_nodes_test_hosts_tls_CPPFLAGS = $(AM_CPPFLAGS) $(OPENSSL_CFLAGS)
tests_nodes_test_hosts_tls_LDADD = $(daemon_fixture_libs) $(OPENSSL_LIBS)
endif
