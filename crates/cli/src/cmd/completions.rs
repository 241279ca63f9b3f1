//! `everhash completions` and `everhash man`: what shells and manuals know of the program.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Print the completions of a shell
///
/// For bash: everhash completions bash > ~/.local/share/bash-completion/completions/everhash
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "everhash", &mut script);
        output::bytes(&[&script])
    }
}

/// Write the manual pages, one for each command
#[derive(Debug, Args)]
pub struct Man {
    /// The directory for the pages, which must exist, such as ~/.local/share/man/man1
    directory: PathBuf,
}

impl Man {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        if !self.directory.is_dir() {
            let directory = self.directory.display();
            return Err(Failure::input(format_args!(
                "{directory}: is no directory; make it first"
            )));
        }
        clap_mangen::generate_to(Cli::command(), &self.directory)
            .map_err(|error| Failure::output(&self.directory, &error))
    }
}
