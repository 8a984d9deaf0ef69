# SPDX-License-Identifier: Apache-2.0
# The rank processes of a pool. squad_sources: those on this host; the agent has them, too. The
# other files: those on all hosts.
squad_sources = \
    daemon/pool/mesh.c daemon/pool/mesh.h \
    daemon/pool/rank_child.c daemon/pool/rank_child.h \
    daemon/pool/rank_host.c daemon/pool/rank_host.h \
    daemon/pool/squad.c daemon/pool/squad.h daemon/pool/squad_state.h \
    daemon/pool/starter.c daemon/pool/starter.h \
    daemon/pool/stderr_pipe.c daemon/pool/stderr_pipe.h
cpattnd_SOURCES += $(squad_sources)
cpattnd_SOURCES += daemon/pool/crew.c
cpattnd_SOURCES += daemon/pool/crew.h
cpattnd_SOURCES += daemon/pool/crew_state.h
cpattnd_SOURCES += daemon/pool/rank_process.c
cpattnd_SOURCES += daemon/pool/rank_process.h
cpattnd_SOURCES += daemon/pool/stderr_text.c
cpattnd_SOURCES += daemon/pool/stderr_text.h
