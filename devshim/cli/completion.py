"""The Tab key: scripts for shells, and the words that may follow those of an unfinished command line.

A shell's script runs ``devshim --complete WORD...`` with the words before the one that is typed, and offers the lines
that this prints. If it prints nothing, the shell offers files.
"""

from __future__ import annotations

from devshim.cli._commands import HELP, Argument, Command, Group

__all__ = ["follow", "script"]

BASH = """_devshim() {
    local words line
    words="$(devshim --complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)"
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")
}
complete -o bashdefault -o default -F _devshim devshim"""

ZSH = """#compdef devshim
_devshim() {
    local -a found
    found=(${(f)"$(devshim --complete "${(@)words[2,CURRENT-1]}" 2>/dev/null)"})
    compadd -- $found || _files
}
compdef _devshim devshim"""

FISH = """function __devshim_complete
    set -l words (commandline -opc)
    devshim --complete $words[2..-1] 2>/dev/null
end
complete -c devshim -a '(__devshim_complete)'"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def script(shell: str) -> str:
    """Return the script for a shell, without a last line break."""
    return SCRIPTS[shell]


def follow(group: Group, words: list[str]) -> list[str]:
    """Return the words that may follow; an empty list means a file, or an argument of which nothing is known."""
    found: Group | Command = group
    while isinstance(found, Group):
        if not words:
            return [*found.commands, *(name for each in found.options() for name in each.names)]
        first, *words = words
        if first not in found.commands:
            return []
        found = found.commands[first]
    return _of_command(found, words)


def _of_command(command: Command, words: list[str]) -> list[str]:
    """Return the options that have not been given, or the values of the option before."""
    if command.program and command.begin(words) < len(words):
        return []
    known = {name: each for each in (*command.arguments, HELP) for name in each.names if each.is_option}
    if words and words[-1] in known and known[words[-1]].takes_value:
        return _values(known[words[-1]])
    choices = [word for each in command.arguments if not each.is_option for word in each.settings.get("choices", ())]
    return [*choices, *(name for name, each in known.items() if not set(each.names) & set(words))]


def _values(option: Argument) -> list[str]:
    from devshim.registry import discovery

    return list(discovery.BUILTIN) if "--backend" in option.names else []
