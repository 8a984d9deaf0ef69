# SPDX-License-Identifier: Apache-2.0
# The rank processes of a pool.
cpattnd_SOURCES += daemon/pool/crew.c
cpattnd_SOURCES += daemon/pool/crew.h
cpattnd_SOURCES += daemon/pool/crew_state.h
cpattnd_SOURCES += daemon/pool/mesh.c
cpattnd_SOURCES += daemon/pool/mesh.h
cpattnd_SOURCES += daemon/pool/rank_process.c
cpattnd_SOURCES += daemon/pool/rank_process.h
cpattnd_SOURCES += daemon/pool/stderr_pipe.c
cpattnd_SOURCES += daemon/pool/stderr_pipe.h
