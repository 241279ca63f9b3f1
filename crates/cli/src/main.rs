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

/// Counts what an image makes a table allocate, for the command that looks for such images.
#[cfg(feature = "judges")]
#[global_allocator]
static METER: everhash_pmem::AllocationMeter = everhash_pmem::AllocationMeter;

fn main() -> ExitCode {
    match cmd::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
