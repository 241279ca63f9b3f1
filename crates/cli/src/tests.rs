//! The page on the command line says what the program says.

use clap::CommandFactory;

use crate::cmd::Cli;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}
