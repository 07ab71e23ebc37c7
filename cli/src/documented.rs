//! `docs/CLI.md`, from the commands themselves. `BULKHEAD_BLESS=1 cargo test -p bulkhead-cli documented` writes it anew.

use std::fmt::Write as _;
use std::path::Path;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory as _};

/// Text of a help, in a cell of a table.
fn cell(text: Option<&StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// How an option, or what stands without one, is written.
fn written(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default().iter().map(|name| name.to_string());
    let takes = argument.get_action().takes_values();
    let value = names.collect::<Vec<_>>().join(" ");
    let name = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => return format!("`{value}`"),
    };
    let may_be_left_out = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
    match (takes, may_be_left_out) {
        (true, true) => format!("`{name}[={value}]`"),
        (true, false) => format!("`{name} {value}`"),
        (false, _) => format!("`{name}`"),
    }
}

/// What holds where an option is not given.
fn otherwise(argument: &Arg) -> String {
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let defaults = if argument.get_action().takes_values() {
        defaults.collect::<Vec<_>>().join(" ")
    } else {
        String::new()
    };
    let environment = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
    let defaults = (!defaults.is_empty()).then(|| format!("`{defaults}`"));
    environment.into_iter().chain(defaults).collect::<Vec<_>>().join(", or ")
}

fn describe(command: &Command, path: &str, page: &mut String) {
    let about = cell(command.get_long_about().or(command.get_about()));
    writeln!(page, "\n## `{path}`\n\n{about}\n").unwrap();
    let own = |argument: &&Arg| {
        !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version")
    };
    let arguments: Vec<&Arg> = command.get_arguments().filter(own).collect();
    if !arguments.is_empty() {
        page.push_str("| Argument | What it does | Otherwise |\n|---|---|---|\n");
    }
    for argument in arguments {
        let help = cell(argument.get_long_help().or(argument.get_help()));
        writeln!(page, "| {} | {help} | {} |", written(argument), otherwise(argument)).unwrap();
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        describe(below, &format!("{path} {}", below.get_name()), page);
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Commands\n\nWritten from the commands themselves: `BULKHEAD_BLESS=1 cargo test -p bulkhead-cli documented` writes it anew. \
         `bulkhead COMMAND --help` says the same. *Otherwise* names the environment variable that is asked, and the default.\n",
    );
    let mut all = super::visible(super::Arguments::command());
    all.build();
    for command in all.get_subcommands().filter(|command| command.get_name() != "help") {
        describe(command, &format!("bulkhead {}", command.get_name()), &mut page);
    }
    page
}

#[test]
fn the_commands_are_documented_as_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/CLI.md");
    let written = page();
    if std::env::var_os("BULKHEAD_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == written,
        "docs/CLI.md is not what the commands say: BULKHEAD_BLESS=1 cargo test -p bulkhead-cli documented"
    );
}
