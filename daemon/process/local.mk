# SPDX-License-Identifier: Apache-2.0
# Processes that the daemon does not trust, and their state in the kernel.
process_sources =
process_sources += daemon/process/confine.c
process_sources += daemon/process/confine.h
process_sources += daemon/process/filter.h
if SECCOMP
process_sources += daemon/process/filter.c
else
process_sources += daemon/process/filter_none.c
endif
process_sources += daemon/process/pidfd.c daemon/process/pidfd.h
process_sources += daemon/process/probe.c
process_sources += daemon/process/probe.h
process_sources += daemon/process/proc.c
process_sources += daemon/process/proc.h
process_sources += daemon/process/spawn.c
process_sources += daemon/process/spawn.h
process_sources += daemon/process/strays.c
process_sources += daemon/process/strays.h
cpattnd_SOURCES += $(process_sources)
