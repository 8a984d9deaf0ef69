# SPDX-License-Identifier: Apache-2.0
# The backend, devices, host and providers of the machine, and bounds of the time of cases.
machine_sources =
machine_sources += daemon/machine/backend.c
machine_sources += daemon/machine/backend.h
machine_sources += daemon/machine/gpus.c
machine_sources += daemon/machine/gpus.h
machine_sources += daemon/machine/host.c
machine_sources += daemon/machine/host.h
cpattnd_SOURCES += daemon/machine/providers.c
cpattnd_SOURCES += daemon/machine/providers.h
cpattnd_SOURCES += daemon/machine/time_bounds.c
cpattnd_SOURCES += daemon/machine/time_bounds.h
cpattnd_SOURCES += $(machine_sources)
