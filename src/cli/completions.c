/* SPDX-License-Identifier: BSD-3-Clause */
/* completions.c - prints completion scripts from the tables of verbs and options */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "option_table.h"
#include "options.h"

static const char note[] = "# SPDX-License-Identifier: BSD-3-Clause\n"
			   "# Made by 'kvarc --completions %s'; do not edit.\n";

/* A command that prints the names of the sessions in the store of the environment. */
static const char sessions[] = "kvarc session list 2>/dev/null | sed \"s/.*  //\"";

static void print_words(const struct verb *verb)
{
	for (const struct option_row *r = options_rows; r->name; r++) {
		if (!(r->verbs & verb->bit))
			continue;
		printf(" --%s", r->name);
		if (r->letter)
			printf(" -%c", r->letter);
		if (r->value.set == options_set_level)
			printf(" -0 -1");
	}
}

static void print_verbs(void)
{
	for (const struct verb *v = options_verbs; v->name; v++)
		printf(" %s", v->name);
}

/* The names of the verb's actions, a blank before each. */
static void print_actions(const struct verb *verb)
{
	for (const struct action_row *a = options_actions; a->name; a++) {
		if (a->verb == verb->bit && a->summary)
			printf(" %s", a->name);
	}
}

/* case patterns of options that take an argument of a kind */
static void print_pattern(enum arg_kind kind)
{
	const char *bar = "";

	for (const struct option_row *r = options_rows; r->name; r++) {
		if (r->arg_kind != kind)
			continue;
		printf("%s--%s", bar, r->name);
		bar = "|";
		if (r->letter)
			printf("|-%c", r->letter);
	}
}

static void print_bash(void)
{
	printf("_kvarc()\n{\n"
	       "    local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}\n"
	       "    local prev=${COMP_WORDS[COMP_CWORD-1]} words actions=\n\n"
	       "    COMPREPLY=()\n"
	       "    if ((COMP_CWORD == 1)); then\n"
	       "        mapfile -t COMPREPLY < <(compgen -W '");
	printf("--help --version");
	print_verbs();
	printf("' -- \"$cur\")\n        return\n    fi\n"
	       "    case $prev in\n    ");
	print_pattern(ARG_FILE);
	printf(")\n        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
	       "        return ;;\n    ");
	print_pattern(ARG_VALUE);
	printf(")\n        return ;;\n");
	for (const struct option_row *r = options_rows; r->name; r++) {
		if (r->arg_kind == ARG_CHOICE)
			printf("    --%s)\n        mapfile -t COMPREPLY < <(compgen -W "
			       "'%s' -- \"$cur\")\n        return ;;\n",
			       r->name, r->choices);
	}
	printf("    esac\n    case $verb in\n");
	for (const struct verb *v = options_verbs; v->name; v++) {
		printf("    %s) words='", v->name);
		print_words(v);
		if (v->bit == VERB_HELP)
			print_verbs();
		if (options_action(v, NULL)) {
			printf("' actions='");
			print_actions(v);
		}
		printf("' ;;\n");
	}
	printf("    *) words= ;;\n    esac\n"
	       "    if [[ $cur == -* || $verb == help ]]; then\n"
	       "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
	       "    elif ((COMP_CWORD == 2)) && [[ -n $actions ]]; then\n"
	       "        mapfile -t COMPREPLY < <(compgen -W \"$actions\" -- \"$cur\")\n"
	       "    elif ((COMP_CWORD == 3)) && [[ $verb == session && $prev != find ]]; then\n"
	       "        # names are text of others, which compgen -W would expand\n"
	       "        while IFS= read -r words; do\n"
	       "            [[ $words != \"$cur\"* ]] || COMPREPLY+=(\"$words\")\n"
	       "        done < <(%s)\n"
	       "    else\n"
	       "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
	       "    fi\n}\n"
	       "complete -o filenames -F _kvarc kvarc\n",
	       sessions);
}

/* Help texts in single quotes: ' and the characters that mean something. */
static void print_escaped(const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", stdout);
		else if (strchr(special, *text))
			printf("\\%c", *text);
		else
			putchar(*text);
	}
}

static void print_zsh_option(const struct option_row *r)
{
	if (r->letter)
		printf("            '(-%c --%s)'{-%c,--%s%s}'[", r->letter, r->name, r->letter,
		       r->name, r->arg ? "=" : "");
	else
		printf("            '--%s%s[", r->name, r->arg ? "=" : "");
	print_escaped(r->help, "[]:");
	putchar(']');
	if (r->arg_kind == ARG_FILE)
		printf(":%s:_files", r->arg);
	else if (r->arg_kind == ARG_CHOICE)
		printf(":%s:(%s)", r->arg, r->choices);
	else if (r->arg)
		printf(":%s: ", r->arg);
	printf("' \\\n");
	if (r->value.set == options_set_level)
		printf("            '-0[fast]' '-1[small]' \\\n");
}

static void print_zsh(void)
{
	printf("_kvarc()\n{\n    local -a verbs\n    verbs=(\n");
	for (const struct verb *v = options_verbs; v->name; v++) {
		printf("        '%s:", v->name);
		print_escaped(v->summary, ":");
		printf("'\n");
	}
	printf("    )\n    if (( CURRENT == 2 )); then\n"
	       "        _describe -t verbs verb verbs\n        return\n    fi\n"
	       "    local verb=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
	       "    case $verb in\n");
	for (const struct verb *v = options_verbs; v->name; v++) {
		printf("    %s)\n        _arguments -s \\\n", v->name);
		for (const struct option_row *r = options_rows; r->name; r++) {
			if (r->verbs & v->bit)
				print_zsh_option(r);
		}
		if (v->bit == VERB_HELP) {
			printf("            '*:verb:(");
			print_verbs();
			printf(" )' ;;\n");
		} else if (options_action(v, NULL)) {
			printf("            '1:action:(");
			print_actions(v);
			printf(" )' \\\n");
			if (v->bit == VERB_SESSION)
				printf("            '2:session:"
				       "{compadd -- ${(f)\"$(%s)\"}; _files}' \\\n",
				       sessions);
			printf("            '*:file:_files' ;;\n");
		} else {
			printf("            '*:file:_files' ;;\n");
		}
	}
	printf("    esac\n}\n_kvarc \"$@\"\n");
}

static void print_fish(void)
{
	printf("complete -c kvarc -n __fish_use_subcommand -f -l version -d 'print the version'\n");
	for (const struct verb *v = options_verbs; v->name; v++) {
		printf("complete -c kvarc -n __fish_use_subcommand -f -a %s -d '", v->name);
		print_escaped(v->summary, "");
		printf("'\n");
	}
	for (const struct option_row *r = options_rows; r->name; r++) {
		printf("complete -c kvarc -n '__fish_seen_subcommand_from");
		for (const struct verb *v = options_verbs; v->name; v++) {
			if (v->bit & r->verbs)
				printf(" %s", v->name);
		}
		printf("' -l %s", r->name);
		if (r->letter)
			printf(" -s %c", r->letter);
		if (r->arg_kind == ARG_FILE)
			printf(" -r -F");
		else if (r->arg_kind == ARG_CHOICE)
			printf(" -x -a '%s'", r->choices);
		else if (r->arg)
			printf(" -x");
		printf(" -d '");
		print_escaped(r->help, "");
		printf("'\n");
	}
	for (const struct verb *v = options_verbs; v->name; v++) {
		for (const struct action_row *a = options_actions; a->name; a++) {
			if (a->verb != v->bit || !a->summary)
				continue;
			printf("complete -c kvarc -n '__fish_seen_subcommand_from %s' -a %s -d '",
			       v->name, a->name);
			print_escaped(a->summary, "");
			printf("'\n");
		}
	}
	printf("complete -c kvarc -n '__fish_seen_subcommand_from session' -a '(%s)'\n", sessions);
	printf("complete -c kvarc -n '__fish_seen_subcommand_from help' -f -a '");
	print_verbs();
	printf(" '\n");
}

bool completions_print(const char *shell)
{
	if (strcmp(shell, "zsh") == 0)
		printf("#compdef kvarc\n");
	if (strcmp(shell, "bash") == 0 || strcmp(shell, "zsh") == 0 || strcmp(shell, "fish") == 0)
		printf(note, shell);
	if (strcmp(shell, "bash") == 0)
		print_bash();
	else if (strcmp(shell, "zsh") == 0)
		print_zsh();
	else if (strcmp(shell, "fish") == 0)
		print_fish();
	else
		return false;
	return true;
}

void completions_print_table(void)
{
	for (const struct verb *v = options_verbs; v->name; v++) {
		for (const struct option_row *r = options_rows; r->name; r++) {
			if (r->verbs & v->bit)
				printf("%s\t%s%c\t%s\t%s\n", v->name, r->letter ? "-" : "",
				       r->letter ? r->letter : '-', r->name, r->arg ? r->arg : "-");
		}
	}
}
