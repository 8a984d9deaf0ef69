# SPDX-License-Identifier: Apache-2.0
# Completion for bash and zsh. bash searches for a file with the name of the command.
bashcompletionsdir = $(datadir)/bash-completion/completions
zshcompletionsdir = $(datadir)/zsh/site-functions
bashcompletions_DATA = client/completion/cpattn-submit client/completion/cpattnd
zshcompletions_DATA = client/completion/_cpattn-submit
EXTRA_DIST += client/completion/cpattn.bash client/completion/_cpattn-submit.in
CLEANFILES += $(bashcompletions_DATA) $(zshcompletions_DATA)

$(bashcompletions_DATA): client/completion/cpattn.bash
	$(AM_V_GEN)$(MKDIR_P) client/completion && \
	cp $(top_srcdir)/client/completion/cpattn.bash $@.tmp && chmod u+w $@.tmp && mv $@.tmp $@
client/completion/_cpattn-submit: client/completion/_cpattn-submit.in Makefile
	$(AM_V_GEN)$(MKDIR_P) client/completion && \
	$(SED) -e 's,[@]bashcompletionsdir[@],$(bashcompletionsdir),g' \
	    $(top_srcdir)/client/completion/_cpattn-submit.in >$@.tmp && mv $@.tmp $@
