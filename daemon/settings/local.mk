# SPDX-License-Identifier: Apache-2.0
# The settings of the daemon.
settings_sources =
settings_sources += daemon/settings/choices.c daemon/settings/choices.h
settings_sources += daemon/settings/difference.c
settings_sources += daemon/settings/guests.c
settings_sources += daemon/settings/guests.h
settings_sources += daemon/settings/host_list.c daemon/settings/host_list.h
settings_sources += daemon/settings/listen.c
settings_sources += daemon/settings/listen.h
settings_sources += daemon/settings/metrics_address.c daemon/settings/metrics_address.h
settings_sources += daemon/settings/plain_file.c daemon/settings/plain_file.h
settings_sources += daemon/settings/provider_list.c
settings_sources += daemon/settings/provider_list.h
settings_sources += daemon/settings/rank_programs.c daemon/settings/rank_programs.h
settings_sources += daemon/settings/rank_user.c
settings_sources += daemon/settings/rank_user.h
settings_sources += daemon/settings/settings.c
settings_sources += daemon/settings/settings.h
settings_sources += daemon/settings/subject_list.c daemon/settings/subject_list.h
settings_sources += daemon/settings/user_list.c
settings_sources += daemon/settings/user_list.h
settings_sources += daemon/settings/values.c
settings_sources += daemon/settings/values.h
cpattnd_SOURCES += $(settings_sources)
