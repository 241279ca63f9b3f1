//! The command line, and what is wrong with it: in one line, and without keys and values, and
//! without arguments that are not known, as these may be some. What an option that never holds one
//! was given, such as `--form`, may be repeated.

use std::error::Error as _;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::cmd::Cli;
use crate::failure::{Failure, Outcome};

/// Reads the command line; shows a help text or the version where it asks for them, and there is
/// nothing else to do then.
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Outcome<Cli> {
    let mut arguments: Vec<_> = arguments.collect();
    // `help` and `help get`, as many programs take them.
    if arguments.get(1).is_some_and(|first| first == "help") {
        arguments.remove(1);
        // Behind "--" it would be a key or a value.
        let end = arguments.iter().position(|argument| argument == "--");
        arguments.insert(end.unwrap_or(arguments.len()), "--help".into());
    }
    Cli::try_parse_from(&arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => show(&error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => Failure::usage(format_args!("{}; see {}", said(&error, &arguments), help(&arguments))),
    })
}

/// Prints a text that was asked for, and returns how the program ends.
fn show(text: &clap::Error) -> Failure {
    match text.print().and_then(|()| std::io::stdout().flush()) {
        Ok(()) => Failure::done(),
        Err(error) => Failure::output(Path::new("standard output"), &error),
    }
}

/// Returns the command that shows how the command line should be.
fn help(arguments: &[OsString]) -> String {
    let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    match Cli::command().find_subcommand(name) {
        Some(command) => format!("everhash {} --help", command.get_name()),
        None => "everhash --help".into(),
    }
}

/// Says what is wrong. Of what the parser tells, only names that the program has are repeated.
fn said(error: &clap::Error, arguments: &[OsString]) -> String {
    let told = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let meant = |kind| match told(kind) {
        text if text.is_empty() => text,
        text => format!("; is {} meant?", text.replace(", ", " or ")),
    };
    let option = told(ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let (place, advice) = (place(&option, arguments), meant(ContextKind::SuggestedArg));
            let dashed = if option.starts_with('-') {
                "is no option here; put -- before keys and values that begin with -"
            } else {
                "is one too many; quote what has spaces"
            };
            format!("{place} {dashed}{advice}")
        }
        ErrorKind::InvalidSubcommand => {
            format!("there is no such command{}", meant(ContextKind::SuggestedSubcommand))
        }
        ErrorKind::InvalidValue if told(ContextKind::InvalidValue).is_empty() => {
            format!("a value is missing for {option}")
        }
        ErrorKind::InvalidValue => {
            format!("{option} takes one of: {}", told(ContextKind::ValidValue))
        }
        ErrorKind::ValueValidation => {
            let why = error.source().map_or("it is wrong".into(), |why| why.to_string());
            format!("the value of {option}: {why}")
        }
        ErrorKind::MissingRequiredArgument => format!("missing: {option}"),
        ErrorKind::ArgumentConflict => {
            format!("{option} does not go with {}", told(ContextKind::PriorArg))
        }
        kind => kind.as_str().unwrap_or("the command line is wrong").into(),
    }
}

/// Names an argument by its place, where that is certain.
fn place(told: &str, arguments: &[OsString]) -> String {
    let is_it = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        argument == told || argument.strip_prefix(told).is_some_and(|rest| rest.starts_with('='))
    };
    let mut places = arguments.iter().enumerate().skip(1).filter(|(_, argument)| is_it(argument));
    match (places.next(), places.next()) {
        (Some((place, _)), None) => format!("argument {place}"),
        _ => "an argument".into(),
    }
}
