# SPDX-License-Identifier: Apache-2.0
# Ranks on other hosts: the side of the daemon, and the agent.
node_sources = \
    daemon/nodes/mesh_port.c daemon/nodes/mesh_port.h \
    daemon/nodes/node_link.c daemon/nodes/node_link.h \
    daemon/nodes/node_wire.c daemon/nodes/node_wire.h
cpattnd_SOURCES += $(node_sources)
cpattnd_SOURCES += daemon/nodes/nodes.c
cpattnd_SOURCES += daemon/nodes/nodes.h

sbin_PROGRAMS += cpattn-agent
cpattn_agent_SOURCES = $(node_sources) $(squad_sources) $(settings_sources) $(process_sources) \
    $(machine_sources) \
    daemon/nodes/agent.c daemon/nodes/agent.h \
    daemon/nodes/agent_main.c \
    daemon/nodes/agent_settings.c daemon/nodes/agent_settings.h \
    daemon/nodes/leftovers.c daemon/nodes/leftovers.h
cpattn_agent_LDADD = daemon/libserver.a $(base_libs) $(OPENSSL_LIBS) yaml/libyamltree.la $(EV_LIBS) $(SECCOMP_LIBS) $(YAML_LIBS) \
    $(PTHREAD_LIBS) $(MATH_LIBS)
