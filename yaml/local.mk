# SPDX-License-Identifier: Apache-2.0
# Reads YAML files: the settings of the daemon and the matrices of the command.
noinst_LTLIBRARIES += yaml/libyamltree.la
yaml_libyamltree_la_SOURCES = $(yaml_sources)
yaml_libyamltree_la_CPPFLAGS = $(AM_CPPFLAGS) $(YAML_CFLAGS)
yaml_libyamltree_la_LIBADD = common/libcommon.la $(YAML_LIBS)

yaml_sources =
yaml_sources += yaml/load.c
yaml_sources += yaml/node.h
yaml_sources += yaml/tree.c
yaml_sources += yaml/yaml.h
