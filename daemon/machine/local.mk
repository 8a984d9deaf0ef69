# SPDX-License-Identifier: Apache-2.0
# What the machine has, and what it can do at most.
cpattnd_SOURCES += daemon/machine/backend.c
cpattnd_SOURCES += daemon/machine/backend.h
cpattnd_SOURCES += daemon/machine/gpus.c
cpattnd_SOURCES += daemon/machine/gpus.h
cpattnd_SOURCES += daemon/machine/host.c
cpattnd_SOURCES += daemon/machine/host.h
cpattnd_SOURCES += daemon/machine/providers.c
cpattnd_SOURCES += daemon/machine/providers.h
cpattnd_SOURCES += daemon/machine/time_bounds.c
cpattnd_SOURCES += daemon/machine/time_bounds.h
