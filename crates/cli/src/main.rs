//! The command line of the key-value store: `everhash`.

mod cmd;
mod failure;
mod input;
mod output;
mod records;
mod usage;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};

/// Counts what an image makes a table allocate, for the command that looks for such images.
#[cfg(feature = "judges")]
#[global_allocator]
static METER: everhash_pmem::AllocationMeter = everhash_pmem::AllocationMeter;

fn main() -> ExitCode {
    // A file that may not become longer (ulimit -f) is then an error of the call, and no silent
    // end. Best effort. Threads have the mask of the one that starts them.
    let mut held = SigSet::empty();
    held.add(Signal::SIGXFSZ);
    let _ = held.thread_block();
    match usage::parse(std::env::args_os()).and_then(cmd::Cli::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
