//! The page about the command line says what the program says.

use clap::CommandFactory;

use crate::cmd::Cli;
use crate::failure::STATUSES;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command-line.md");

/// How a block of the page begins that holds a help text.
const OPENING: &str = "```text\n$ everhash ";

#[test]
fn the_command_line_is_consistent() {
    // Fails if two options of a command had one name, or a rule named an option that is not there.
    Cli::command().debug_assert();
}

#[test]
#[cfg_attr(feature = "judges", ignore = "the page is of the usual program")]
fn the_page_shows_the_help_of_every_command() {
    // Fails if an option were added or renamed and the page not; `UPDATE=1` rewrites the page.
    let page = std::fs::read_to_string(PAGE).unwrap();
    let mut expected = String::new();
    let mut shown = Vec::new();
    let mut rest = page.as_str();
    while let Some((before, after)) = rest.split_once(OPENING) {
        let (arguments, after) = after.split_once('\n').unwrap();
        let (_, after) = after.split_once("```\n").unwrap();
        let name = arguments.strip_suffix("--help").unwrap().trim();
        expected += &format!("{before}{OPENING}{arguments}\n{}```\n", help(name));
        shown.push(name.to_owned());
        rest = after;
    }
    expected += rest;
    let program = Cli::command();
    let names = program.get_subcommands().flat_map(|command| {
        let name = command.get_name();
        let inner =
            command.get_subcommands().map(move |inner| format!("{name} {}", inner.get_name()));
        std::iter::once(name.to_owned()).chain(inner)
    });
    assert_eq!(shown[0], "");
    assert_eq!(shown[1..], names.collect::<Vec<_>>()[..]);
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(PAGE, &expected).unwrap();
    }
    assert!(page == expected, "{PAGE} is old; rewrite it: UPDATE=1 cargo test -p everhash-cli");
}

#[test]
fn the_page_lists_every_status() {
    // Fails if a status were added or had another meaning, and the table of the page not.
    let page = std::fs::read_to_string(PAGE).unwrap();
    let statuses = STATUSES.lines().skip(1).map(|line| line.trim().split_once("  ").unwrap());
    let rows: Vec<_> = statuses.map(|(code, what)| format!("| {code} | {what} |")).collect();
    assert_eq!(rows.len(), 6);
    assert!(page.contains(&rows.join("\n")), "{PAGE} has another table of statuses");
}

/// Returns the help of a command, or of the program.
fn help(name: &str) -> String {
    let mut program = Cli::command().term_width(100);
    program.build();
    let mut command = &mut program;
    for part in name.split_whitespace() {
        command = command.find_subcommand_mut(part).unwrap();
    }
    let help = command.render_long_help().to_string();
    help.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
