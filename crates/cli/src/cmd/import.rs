//! `everhash import`: records of a file into a database.

mod feed;
mod progress;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use everhash_store::{Durability, Form, admit, admit_in_table};
use serde_json::json;

use self::feed::{Feed, Imported, Target};
use self::progress::Progress;
use super::numbers::whole;
use super::{AnyTable, NewDatabase, TableToWrite, figures};
use crate::failure::{Failure, Outcome};
use crate::input::Lines;
use crate::output::{self, count};
use crate::records::Format;

/// Put the records of a file into a database, which is made if there is none
///
/// A record that cannot be read ends the import; what came before it is in the database. An import
/// that was killed leaves a database that opens, with a part of the records: import again. Records
/// are stored some hundred at a time: the last ones of a pipe that waits are stored when it ends.
#[derive(Debug, Args)]
pub struct Import {
    /// The file to read; - is standard input
    file: PathBuf,
    /// The database file
    #[arg(value_name = "DB")]
    database: PathBuf,
    /// Format; by default jsonl if the name of the file ends in .jsonl, .ndjson or .json, else tsv
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// What to do with a key that is there already
    #[arg(long, value_enum, default_value = "replace")]
    on_duplicate: OnDuplicate,
    /// When a record survives power loss: immediate, batch, process, or an interval
    ///
    /// By default process for a new database and batch for an existing one, which is immediate
    /// where its engine does not batch. All records are durable before the summary is printed. With
    /// process, one sync at the end makes them so; if the machine goes down before that, the
    /// database may be damaged, which costs nothing where the records are still in the file, and
    /// everything where the database held others.
    #[arg(long, value_name = "WHEN")]
    durability: Option<Durability>,
    /// Threads that write; by default 16 where each write waits for the device, as they share their
    /// waits, else one per processor
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16>(1..=256))]
    threads: Option<u16>,
    /// Write figures to DB.prom every second, for `everhash top DB` in another terminal
    #[arg(long)]
    metrics: bool,
    /// Let each pair expire so many seconds after it is stored. The table must have expiry times;
    /// it is made with them if it is not there
    #[arg(long, value_name = "SECONDS", requires = "table", value_parser = super::put::seconds)]
    expires_after: Option<Duration>,
    #[command(flatten)]
    table: TableToWrite,
    #[command(flatten)]
    new: NewDatabase,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// What to do with a key that is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OnDuplicate {
    /// Give it the new value: of equal keys in the file, the last one wins
    Replace,
    /// Leave its value: of equal keys in the file, the first one wins
    Keep,
    /// End the import with status 3
    Error,
}

impl Import {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let format = Format::choose(self.format, &self.file);
        if self.file != Path::new("-") && is_same(&self.file, &self.database) {
            let file = self.file.display();
            return Err(Failure::usage(format_args!("{file}: is the database; name another file")));
        }
        let mut lines = Lines::open(&self.file)?;
        // The first record is read before a database is made: a wrong file leaves none behind.
        let first = format.read(&mut lines)?;
        let existed = self.database.symlink_metadata().is_ok();
        if existed {
            self.new.refuse_settings(&self.database)?;
        }
        if let Some((key, value)) = &first {
            // Neither a database nor a table is made for a pair that is refused.
            let form = self.new.form.unwrap_or(Form::Variable);
            let admitted = match self.table.table {
                Some(_) if existed || form == Form::Variable => {
                    admit_in_table(key, value, self.expires_after.is_some())
                }
                _ if existed => Ok(()),
                _ => admit(form, key, value),
            };
            admitted.map_err(|error| lines.wrong(error))?;
        }
        let by_default = if existed { Durability::Batch } else { Durability::Process };
        let durability = self.durability.unwrap_or(by_default);
        let failed = self.new.failure();
        let mut options = self.new.options().durability(durability).create_if_missing(true);
        if self.metrics {
            let every = Duration::from_secs(1);
            options = options.metrics_file(figures::file_of(&self.database), every);
        }
        let db = options.open(&self.database).map_err(failed)?;
        let table = match (self.expires_after, &self.table.table) {
            (Some(_), Some(name)) => AnyTable::Expiring(db.expiring_table_or_create(name)?),
            _ => AnyTable::Plain(self.table.of_or_new(db.clone())?),
        };
        let threads = threads(self.threads, db.info().durability, self.on_duplicate);

        let started = Instant::now();
        let progress = Progress::start(lines.bytes);
        let target = Target { table: &table, after: self.expires_after.unwrap_or_default() };
        let feed = Feed { target, format, on_duplicate: self.on_duplicate, threads };
        let (imported, result) = feed.run(&mut lines, first, &progress);
        progress.end();
        let kept = |failure: Failure| {
            let count = imported.records;
            failure.after(format_args!("(records stored before: {count}; they stay)"))
        };
        result.map_err(kept)?;
        db.sync()?;
        let seconds = started.elapsed().as_secs_f64();
        let items = table.len()?;
        drop(db);
        table.close()?;
        let bytes = self.database.metadata().map_or(0, |found| found.len());
        Summary { imported, seconds, items, bytes }.print(self.json)
    }
}

/// Returns whether two names are of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    of(one).is_some_and(|file| Some(file) == of(other))
}

fn threads(asked: Option<u16>, durability: Durability, on_duplicate: OnDuplicate) -> usize {
    // Two threads would not agree on which record of a file was there first.
    if on_duplicate == OnDuplicate::Error {
        return 1;
    }
    let processors = || std::thread::available_parallelism().map_or(1, |count| count.get());
    asked.map_or_else(
        // Source: ours, measured on an ext4 file: 96 records/s with one thread, 2,050 with 4, 6,880
        // with 16, 6,210 with 64.
        || if durability == Durability::Immediate { 16 } else { processors() },
        usize::from,
    )
}

struct Summary {
    imported: Imported,
    seconds: f64,
    items: u64,
    bytes: u64,
}

impl Summary {
    fn print(&self, as_json: bool) -> Outcome {
        let Imported { records, new, replaced, kept } = self.imported;
        let (seconds, items, bytes) = (self.seconds, self.items, self.bytes);
        let rate = records as f64 / seconds.max(1e-9);
        let per_item = bytes as f64 / items.max(1) as f64;
        if as_json {
            return output::print_json(&json!({
                "records": records,
                "new": new,
                "replaced": replaced,
                "kept": kept,
                "seconds": seconds,
                "records_per_second": rate,
                "items": items,
                "file_bytes": bytes,
                "file_bytes_per_item": per_item,
            }));
        }
        output::print(&format!(
            "{} ({new} new, {replaced} replaced, {kept} kept) in {seconds:.2} s, {rate:.0} \
             records/s; {} in the table, {bytes} bytes in the file: {per_item:.1} an item",
            count(records, "record"),
            count(items, "item")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_threads_write_as_were_asked_for() {
        // Fails if --threads were ignored, or if several threads wrote where no record behind a
        // duplicate may be stored.
        let [immediate, batch] = [Durability::Immediate, Durability::Batch];
        assert_eq!(threads(Some(3), immediate, OnDuplicate::Replace), 3);
        assert_eq!(threads(Some(3), batch, OnDuplicate::Keep), 3);
        assert_eq!(threads(None, immediate, OnDuplicate::Keep), 16);
        assert_eq!(threads(Some(3), batch, OnDuplicate::Error), 1);
    }
}
