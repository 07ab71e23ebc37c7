//! Completion scripts: what clap writes of commands and options, and names of modules, which a kernel that serves is asked for.

use clap_complete::Shell;

/// What asks for the names of the modules that there are.
const NAMES: &str = "bulkhead module list --names 2>/dev/null";

/// Has a script complete names of modules too: for `module stop`, and behind `run --module`.
pub(crate) fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!(
            "{script}\n\
             # Names of modules, of the kernel that serves.\n\
             _bulkhead_names() {{\n\
             \x20   local word=\"${{COMP_WORDS[COMP_CWORD]}}\" before=\"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             \x20   if [[ \"${{COMP_WORDS[1]}} $before\" == \"run --module\" || \"${{COMP_WORDS[1]}} $before\" == \"module stop\" ]]; then\n\
             \x20       COMPREPLY=($(compgen -W \"$({NAMES})\" -- \"$word\"))\n\
             \x20       return 0\n\
             \x20   fi\n\
             \x20   _bulkhead \"$@\"\n\
             }}\n\
             complete -F _bulkhead_names -o bashdefault -o default bulkhead\n"
        ),
        Shell::Fish => format!(
            "{script}\n\
             # Names of modules, of the kernel that serves.\n\
             complete -c bulkhead -n \"__fish_seen_subcommand_from module; and __fish_seen_subcommand_from stop\" -f -a \"({NAMES})\"\n\
             complete -c bulkhead -n \"__fish_seen_subcommand_from run\" -l module -x -a \"({NAMES})\"\n"
        ),
        Shell::Zsh => {
            let asks = format!("{{compadd -- ${{(f)\"$({NAMES})\"}}}}");
            let lines = script.lines().map(|line| {
                let names = [":NAME=WORDS:_default'", "The module'\\''s name:_default'"]
                    .iter()
                    .any(|end| line.contains(end));
                if names { line.replace(":_default'", &format!(":{asks}'")) } else { line.to_owned() }
            });
            lines.map(|line| line + "\n").collect()
        }
        _ => script.to_owned(),
    }
}
