//! The command line of the key-value store: `everhash`.

mod cmd;
mod failure;
mod input;
mod output;
mod records;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cmd::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
