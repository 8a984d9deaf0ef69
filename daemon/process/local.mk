# SPDX-License-Identifier: Apache-2.0
# Processes that the daemon does not trust, and what the kernel says of them.
cpattnd_SOURCES += daemon/process/confine.c
cpattnd_SOURCES += daemon/process/confine.h
cpattnd_SOURCES += daemon/process/filter.h
if SECCOMP
cpattnd_SOURCES += daemon/process/filter.c
else
cpattnd_SOURCES += daemon/process/filter_none.c
endif
cpattnd_SOURCES += daemon/process/pidfd.c daemon/process/pidfd.h
cpattnd_SOURCES += daemon/process/probe.c
cpattnd_SOURCES += daemon/process/probe.h
cpattnd_SOURCES += daemon/process/proc.c
cpattnd_SOURCES += daemon/process/proc.h
cpattnd_SOURCES += daemon/process/spawn.c
cpattnd_SOURCES += daemon/process/spawn.h
cpattnd_SOURCES += daemon/process/strays.c
cpattnd_SOURCES += daemon/process/strays.h
