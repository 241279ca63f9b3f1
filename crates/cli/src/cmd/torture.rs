//! `everhash torture`: processes that write, killed at any moment, and what their databases hold.

mod history;
mod writer;

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, builder::PossibleValuesParser};
use everhash_store::{Db, Durability, EngineInfo, Form, engine, engines};
use serde_json::json;

use self::history::{History, MOST_BYTES, Model, Said};
use self::writer::{ACKNOWLEDGEMENT_BYTES, Writer};
use super::numbers::{ANY, whole};
use super::trust_figures::Record;
use super::{form, setting};
use crate::failure::{Failure, Outcome};
use crate::output;

/// After how many kills a database is read out.
///
/// Source: ours; the kills between meet databases that nobody closed, several times in turn.
const KILLS_BETWEEN: u64 = 4;

/// Kill processes that write, again and again, and check that nothing is lost
///
/// A process writes to a database and says of each write that it returned. It is killed at a random
/// moment: while it makes or recovers the database, writes, grows or collects. The next process
/// goes on where it stopped, and every few kills the database is checked and compared, pair by
/// pair, with what the processes said. Where pairs are byte strings, some lie in named tables,
/// which are dropped and made again. In the end all is removed; no removal and no drop may be
/// refused, however little room there is. Engines, forms, durabilities and one to three threads
/// take turns. The last line has the figures; the status is 1 if anything was lost, came back or
/// could not be removed, and the database stays.
#[derive(Debug, Args)]
pub struct Torture {
    /// The engine; by default each in turn
    #[arg(long, value_name = "NAME",
          value_parser = PossibleValuesParser::new(engines().iter().map(|engine| engine.name)))]
    engine: Option<String>,
    /// The form of the pairs, variable or 8/8; by default both in turn
    #[arg(long, value_name = "FORM", value_parser = written_form)]
    form: Option<Form>,
    /// When a write is durable: immediate, batch, process or an interval such as 100ms; by default
    /// batch, process and 5ms in turn
    #[arg(long, value_name = "WHEN")]
    durability: Option<Durability>,
    /// How many threads a process has; by default one, two and three in turn
    #[arg(long, value_name = "COUNT", value_parser = whole::<u64>(1..=32))]
    threads: Option<u64>,
    /// How many processes are killed, for each engine
    #[arg(long, value_name = "COUNT", default_value_t = 200,
          value_parser = whole::<u64>(1..=1_000_000))]
    kills: u64,
    /// The seed of what is written and of when a process is killed; the moment itself depends on
    /// the machine
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>(ANY))]
    seed: u64,
    /// Setting of the engine, such as one that makes it grow more often; see `everhash engines`
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting, requires = "engine")]
    settings: Vec<(String, u64)>,
    /// How long a database may become, in bytes; a value is a 64th of it at most. A write that
    /// finds no room is refused, and must change nothing
    #[arg(long, value_name = "BYTES", value_parser = whole::<u64>(1..=1 << 40))]
    capacity: Option<u64>,
    /// Where the databases are made; by default in the directory for temporary files
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    record: Record,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// The process that is killed: the database, the number of threads, and how far each came
    #[arg(long, hide = true, num_args = 3.., value_names = ["DB", "THREADS", "FROM"])]
    write: Vec<String>,
}

/// What happened so far.
#[derive(Clone, Copy, Default)]
struct Figures {
    kills: u64,
    /// Kills of processes that had not yet said anything: they made or recovered the database.
    early: u64,
    writes: u64,
    /// Writes that found no room.
    refused: u64,
    comparisons: u64,
}

/// How many threads write to the databases of an engine: neither a form nor a durability has always
/// as many.
const THREADS: [u64; 6] = [1, 2, 3, 2, 3, 1];

/// The part of a database without room that one value may be.
///
/// Source: ours; where a few values are much of a table, `reef` may find no piece of its log for
/// one of them until others are gone, and refuse a removal for that.
const LONG_PART: u64 = 64;

/// How long a process may take to write something before it is killed all the same.
///
/// Source: ours; a machine with much else to do takes a second.
const MOST_PATIENCE: Duration = Duration::from_secs(20);

/// One database and what is known of it.
struct Victim<'a> {
    torture: &'a Torture,
    path: PathBuf,
    engine: &'static EngineInfo,
    durability: Durability,
    model: Model,
}

impl Torture {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        if !self.write.is_empty() {
            return self.writer()?.run();
        }
        let mut named = tempfile::Builder::new();
        // The name tells whose a directory is that a killed program has left.
        named.prefix("everhash-torture-");
        let directory = match &self.directory {
            Some(directory) => named.tempdir_in(directory),
            None => named.tempdir(),
        };
        let directory = directory.map_err(|error| {
            Failure::device(format_args!("no directory for the databases: {error}"))
        })?;
        let chosen: Vec<_> = match &self.engine {
            Some(name) => vec![engine(name)?],
            None => engines().iter().collect(),
        };
        for engine in &chosen {
            self.try_options(engine, directory.path())?;
        }
        let mut total = Figures::default();
        for engine in chosen {
            let figures = match self.torture(engine, directory.path()) {
                Ok(figures) => figures,
                Err(failure) => {
                    // What was found is worth more than a tidy disk.
                    let place = directory.keep();
                    return Err(failure.after(format_args!("(kept in {})", place.display())));
                }
            };
            let Figures { kills, early, writes, comparisons, .. } = figures;
            let kept = [
                ("kills", kills),
                ("early", early),
                ("writes", writes),
                ("comparisons", comparisons),
            ];
            self.record.keep(engine.name, "torture", &kept)?;
            output::print(&figures.line(engine.name, self.json))?;
            total = total.plus(figures);
        }
        match self.engine {
            Some(_) => Ok(()),
            None => output::print(&total.line("all", self.json)),
        }
    }

    fn writer(&self) -> Outcome<Writer> {
        let wrong = || Failure::usage("--write is what this command calls itself with");
        let number = |text: &String| text.parse::<u64>().map_err(|_| wrong());
        let [path, threads, from @ ..] = &self.write[..] else { return Err(wrong()) };
        let from = from.iter().map(number).collect::<Outcome<Vec<_>>>()?;
        if number(threads)? != from.len() as u64 {
            return Err(wrong());
        }
        let form = self.form.unwrap_or(Form::Variable);
        let engine = self.engine.as_deref().ok_or_else(wrong)?;
        let options = self.options(engine, form, self.durability.unwrap_or_default());
        let threads = from.len() as u64;
        let history = History { seed: self.seed, form, threads, longest: self.longest() };
        let may_be_full = self.capacity.is_some();
        Ok(Writer { path: path.into(), options, history, from, may_be_full })
    }

    fn options(&self, engine: &str, form: Form, durability: Durability) -> everhash_store::Options {
        let mut options = Db::options().engine(engine).form(form).durability(durability);
        for (name, value) in &self.settings {
            options = options.setting(name, *value);
        }
        if let Some(bytes) = self.capacity {
            options = options.capacity_bytes(bytes);
        }
        options.create_if_missing(true)
    }

    /// Returns how long the values may be.
    fn longest(&self) -> u64 {
        self.capacity.map_or(MOST_BYTES, |bytes| (bytes / LONG_PART).min(MOST_BYTES))
    }

    /// Returns the forms and durabilities that take turns.
    fn turns(&self) -> Vec<(Form, Durability)> {
        let forms = self.form.map_or(vec![Form::Variable, Form::WORDS], |form| vec![form]);
        let interval = Durability::Interval(Duration::from_millis(5));
        let durabilities = self
            .durability
            .map_or(vec![Durability::Batch, Durability::Process, interval], |durability| {
                vec![durability]
            });
        let of_form = |form| durabilities.iter().map(move |durability| (form, *durability));
        forms.into_iter().flat_map(of_form).collect()
    }

    /// Makes and removes a database of every turn: a writer that ends because of an option would
    /// look like a broken promise.
    fn try_options(&self, engine: &EngineInfo, directory: &Path) -> Outcome {
        let path = directory.join("options.ehdb");
        let failed = |error: everhash_store::Error| match self.capacity {
            Some(bytes) if error.is_full() => Failure::usage(format_args!(
                "--capacity {bytes}: too little for an empty database of {}; choose more",
                engine.name
            )),
            _ => error.into(),
        };
        for (form, durability) in self.turns() {
            let db = self.options(engine.name, form, durability).open(&path).map_err(failed)?;
            db.close()?;
            std::fs::remove_file(&path)
                .map_err(|error| Failure::device(format_args!("{}: {error}", path.display())))?;
        }
        Ok(())
    }

    /// Kills processes that write to databases of one engine.
    fn torture(&self, engine: &'static EngineInfo, directory: &Path) -> Outcome<Figures> {
        let mut victims = self.victims(engine, directory);
        let mut figures = Figures::default();
        let count = victims.len() as u64;
        for kill in 0..self.kills {
            let victim = &mut victims[(kill % count) as usize];
            victim.kill(&mut figures)?;
            if kill / count % KILLS_BETWEEN == KILLS_BETWEEN - 1 {
                victim.compare(&mut figures)?;
            }
        }
        for victim in &mut victims {
            victim.compare(&mut figures)?;
            victim.empty()?;
            std::fs::remove_file(&victim.path).map_err(|error| {
                Failure::device(format_args!("{}: {error}", victim.path.display()))
            })?;
        }
        Ok(figures)
    }

    /// Returns the databases of one engine: one for every turn.
    fn victims(&self, engine: &'static EngineInfo, directory: &Path) -> Vec<Victim<'_>> {
        let mut victims = Vec::new();
        for (number, (form, durability)) in self.turns().into_iter().enumerate() {
            let threads = self.threads.unwrap_or(THREADS[number % THREADS.len()]);
            let seed = self.seed.wrapping_add(number as u64);
            let history = History { seed, form, threads, longest: self.longest() };
            victims.push(Victim {
                torture: self,
                path: directory.join(format!("{}-{number}.ehdb", engine.name)),
                engine,
                durability,
                model: Model::new(history, engine.capabilities.atomic_batches),
            });
        }
        victims
    }
}

/// Returns the names of the tables of a database.
fn tables(db: &Db) -> Outcome<Vec<String>> {
    match db.info().form {
        Form::Variable => db.tables().map_err(Failure::answer),
        Form::Fixed { .. } => Ok(Vec::new()),
    }
}

/// Reads a form that the writers know.
fn written_form(text: &str) -> Result<Form, String> {
    let form = form(text)?;
    match [Form::Variable, Form::WORDS].contains(&form) {
        true => Ok(form),
        false => Err("pairs of this form are not written here; use variable or 8/8".into()),
    }
}

impl Victim<'_> {
    /// Lets a process go on with the writes, and kills it.
    fn kill(&mut self, figures: &mut Figures) -> Outcome {
        let failed = |error| Failure::device(format_args!("the process that writes: {error}"));
        let mut process = self.command()?.spawn().map_err(failed)?;
        let mut pipe = process.stdout.take().expect("its output was asked for");
        let (writes, wait) = self.moment(figures.kills);
        let said = std::thread::scope(|scope| {
            let (begins, has_begun) = mpsc::channel();
            let reader = scope.spawn(move || {
                let mut said = vec![0];
                let first = pipe.read(&mut said)?;
                said.truncate(first);
                // Nobody listens if the kill does not depend on it.
                let _ = begins.send(());
                pipe.read_to_end(&mut said).map(|_| said)
            });
            if writes {
                // One that ends, or says nothing, is seen below.
                let _ = has_begun.recv_timeout(MOST_PATIENCE);
            }
            std::thread::sleep(wait);
            let killed = process.kill();
            let said = reader.join().expect("a reader does not panic");
            killed.and(said)
        })
        .map_err(failed)?;
        let status = process.wait().map_err(failed)?;
        if status.code().is_some() {
            let path = self.path.display();
            return Err(Failure::answer(format_args!(
                "{path}: its writer ended by itself: {status}"
            )));
        }
        self.take_note(&said, figures)
    }

    /// Takes note of what a process said until it was killed.
    fn take_note(&mut self, said: &[u8], figures: &mut Figures) -> Outcome {
        let whole = said.chunks_exact(ACKNOWLEDGEMENT_BYTES);
        let count = whole.len() as u64;
        for word in whole {
            let word = u64::from_le_bytes(word.try_into().expect("chunks of this length"));
            let said = self.model.acknowledge(word).map_err(|what| self.broken(&what))?;
            figures.refused += u64::from(said == Said::Refused);
        }
        self.model.killed();
        figures.kills += 1;
        figures.early += u64::from(count == 0);
        figures.writes += count;
        Ok(())
    }

    fn command(&self) -> Outcome<Command> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::device(format_args!("the path of this program: {error}")))?;
        let mut command = Command::new(program);
        let history = self.model.history();
        command.arg("torture").args(["--engine", self.engine.name]);
        command.args(["--form", &history.form.to_string()]);
        command.args(["--durability", &self.durability.to_string()]);
        command.args(["--seed", &history.seed.to_string()]);
        for (name, value) in &self.torture.settings {
            command.args(["--set", &format!("{name}={value}")]);
        }
        if let Some(bytes) = self.torture.capacity {
            command.args(["--capacity", &bytes.to_string()]);
        }
        command.arg("--write").arg(&self.path).arg(history.threads.to_string());
        command.args(self.model.next().iter().map(u64::to_string));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }

    /// Returns when a process is killed: whether only after it has written something, and how long
    /// it lives from then on, or from its start; often so short that it dies while it recovers.
    fn moment(&self, kills: u64) -> (bool, Duration) {
        let random = history::mix(self.model.history().seed ^ history::mix(kills));
        let most = [4_000, 30_000, 60_000, 300_000][(random % 4) as usize];
        (random % 4 == 2, Duration::from_micros((random >> 8) % most))
    }

    /// Opens the database and compares it with what the processes said.
    fn compare(&mut self, figures: &mut Figures) -> Outcome {
        let db = self.open()?;
        db.check().map_err(Failure::answer)?;
        let pairs = self.pairs(&db)?;
        db.close().map_err(Failure::answer)?;
        figures.comparisons += 1;
        self.model.compare(pairs).map_err(|what| self.broken(&what))
    }

    /// Opens the database and removes all that it holds, by two threads, and drops its tables:
    /// nothing may be there then, and nothing may be refused, however full the database was.
    fn empty(&self) -> Outcome {
        let db = self.open()?;
        let keys: Vec<_> = self.pairs(&db)?.into_keys().collect();
        let remove = |key: &Vec<u8>| writer::remove(&db, self.model.table(key).as_deref(), key);
        let remove = |keys: &[Vec<u8>]| {
            keys.iter().enumerate().try_for_each(|(removed, key)| match remove(key) {
                Ok(true) => Ok(()),
                Ok(false) => Err("a pair that is there could not be removed".into()),
                Err(error) => Err(format!("after {removed} removals in a row one failed: {error}")),
            })
        };
        let (first, second) = keys.split_at(keys.len() / 2);
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| remove(second));
            remove(first).and(beside.join().expect("no removal panics"))
        })
        .map_err(|what| self.broken(&what))?;
        if !self.pairs(&db)?.is_empty() {
            return Err(self.broken("pairs are there after all were removed"));
        }
        for name in tables(&db)? {
            db.drop_table(&name).map_err(Failure::answer)?;
        }
        db.check().map_err(Failure::answer)?;
        db.close().map_err(Failure::answer)
    }

    fn open(&self) -> Outcome<Db> {
        let form = self.model.history().form;
        let options = self.torture.options(self.engine.name, form, self.durability);
        options.open(&self.path).map_err(Failure::answer)
    }

    /// Returns the pairs of all tables. There may be none but those that threads write into.
    fn pairs(&self, db: &Db) -> Outcome<HashMap<Vec<u8>, Vec<u8>>> {
        let mut all = self.pairs_of(db)?;
        let history = self.model.history();
        let own: Vec<_> = (0..)
            .zip(self.model.next())
            .map(|(thread, index)| history.table(thread, *index))
            .collect();
        for name in tables(db)? {
            if !own.contains(&name) {
                return Err(self.broken(&format!("table {name} is there, which was dropped")));
            }
            all.extend(self.pairs_of(&db.table(&name).map_err(Failure::answer)?)?);
        }
        Ok(all)
    }

    /// Returns the pairs of one table, in which no others may lie.
    fn pairs_of(&self, table: &Db) -> Outcome<HashMap<Vec<u8>, Vec<u8>>> {
        let mut pairs = Vec::new();
        table
            .scan(|key, value| pairs.push((key.to_vec(), value.to_vec())))
            .map_err(Failure::answer)?;
        let count = table.len().map_err(Failure::answer)?;
        let pairs = history::distinct(pairs, count).map_err(|what| self.broken(&what))?;
        match pairs.keys().all(|key| self.model.table(key).as_deref() == table.table_name()) {
            true => Ok(pairs),
            false => Err(self.broken("a key lies in a table into which it was not put")),
        }
    }

    fn broken(&self, what: &str) -> Failure {
        let history = self.model.history();
        Failure::answer(format_args!(
            "{}, {}, {}, {} threads: {what}; {}",
            self.engine.name,
            history.form,
            self.durability,
            history.threads,
            self.path.display()
        ))
    }
}

impl Figures {
    fn plus(self, other: Figures) -> Figures {
        Figures {
            kills: self.kills + other.kills,
            early: self.early + other.early,
            writes: self.writes + other.writes,
            refused: self.refused + other.refused,
            comparisons: self.comparisons + other.comparisons,
        }
    }

    fn line(&self, engine: &str, json: bool) -> String {
        let Figures { kills, early, writes, refused, comparisons } = self;
        if json {
            return json!({
                "engine": engine,
                "kills": kills,
                "killed_before_a_write": early,
                "writes": writes,
                "refused": refused,
                "comparisons": comparisons,
            })
            .to_string();
        }
        format!(
            "{engine}: {kills} kills, {early} of them before a write, {writes} writes that \
             returned, {refused} of them without room, {comparisons} comparisons: nothing was lost"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::history::{Change, Write};
    use super::*;
    use crate::cmd::parsed;

    fn torture(options: &[&str]) -> Torture {
        parsed(options)
    }

    #[test]
    fn forms_durabilities_and_threads_take_turns() {
        // Fails if a promise were looked at with half of what it is made for.
        let all = torture(&["--seed", "40"]);
        let victims = all.victims(engine("reef").unwrap(), Path::new("d"));
        let mut turns: Vec<_> = victims
            .iter()
            .map(|victim| (victim.model.history().form.to_string(), victim.durability.to_string()))
            .collect();
        turns.sort_unstable();
        turns.dedup();
        assert_eq!((turns.len(), victims.len()), (6, 6), "{turns:?}");
        for form in ["8/8", "variable"] {
            for durability in ["batch", "process", "5ms"] {
                assert!(turns.contains(&(form.into(), durability.into())), "{turns:?}");
            }
        }
        let histories = victims.iter().map(|victim| victim.model.history());
        let of: Vec<_> = histories.map(|history| (history.seed, history.threads)).collect();
        assert_eq!(of, [(40, 1), (41, 2), (42, 3), (43, 2), (44, 3), (45, 1)]);
        let four = torture(&["--threads", "4"]);
        let victims = four.victims(engine("reef").unwrap(), Path::new("d"));
        assert!(victims.iter().all(|victim| victim.model.history().threads == 4));
        let one = torture(&["--form", "8/8", "--durability", "process"]).turns();
        assert_eq!(one, [(Form::WORDS, Durability::Process)]);
    }

    #[test]
    fn a_capacity_for_which_an_engine_is_too_large_is_said_to_be_too_little() {
        // Fails if the device were said to be full, or an option that is given to look like a
        // broken promise.
        let folder = tempfile::tempdir().unwrap();
        let torture = torture(&["--engine", "elimda", "--capacity", "100000"]);
        let failure = torture.try_options(engine("elimda").unwrap(), folder.path()).unwrap_err();
        let text = format!("{failure:?}");
        assert!(text.contains("--capacity 100000: too little for an empty"), "{text}");
        assert!(text.contains("status: 2"), "{text}");
    }

    #[test]
    fn a_writer_does_what_its_parent_was_told() {
        // Fails if an option does not get through: another database would be tortured.
        let told = "--engine reef --seed 7 --set flush_bytes=4096 --capacity 4000000";
        let parent = torture(&told.split(' ').collect::<Vec<_>>());
        let mut victims = parent.victims(engine("reef").unwrap(), Path::new("d"));
        let victim = &mut victims[1];
        let word = history::acknowledgement(1, 0, Said::Done);
        victim.model.acknowledge(word).unwrap();
        let command = victim.command().unwrap();
        let arguments: Vec<_> = command.get_args().map(|one| one.to_str().unwrap()).collect();
        let expected = "torture --engine reef --form variable --durability process --seed 8 \
                        --set flush_bytes=4096 --capacity 4000000 \
                        --write d/reef-1.ehdb 2 0 1";
        assert_eq!(arguments.join(" "), expected);
        let child = torture(&arguments[1..]);
        assert_eq!(child.settings, [("flush_bytes".to_owned(), 4096)]);
        assert_eq!(child.capacity, Some(4_000_000));
        let writer = child.writer().unwrap();
        let other = torture(&["--engine", "reef", "--write", "d", "1", "0"]).writer().unwrap();
        assert!(writer.may_be_full && !other.may_be_full);
        assert_eq!((writer.path, writer.from), ("d/reef-1.ehdb".into(), vec![0, 1]));
        let History { seed, form, threads, longest } = writer.history;
        assert_eq!((seed, form, threads, longest), (8, Form::Variable, 2, 62_500));
        assert_eq!(other.history.longest, MOST_BYTES);
        let odd = ["--engine", "reef", "--write", "d", "2", "0"];
        assert!(torture(&odd).writer().is_err());
    }

    #[test]
    fn a_database_that_lacks_a_write_that_returned_is_a_finding() {
        // Fails if nobody looked at what a comparison says.
        let folder = tempfile::tempdir().unwrap();
        let parent = torture(&["--engine", "reef", "--form", "8/8"]);
        let mut victims = parent.victims(engine("reef").unwrap(), folder.path());
        let (victim, mut figures) = (&mut victims[0], Figures::default());
        let options = parent.options("reef", Form::WORDS, victim.durability);
        let db = options.open(&victim.path).unwrap();
        let history = victim.model.history();
        for index in 0..300 {
            writer::write(&db, &history, (0, index)).unwrap();
            victim.model.acknowledge(history::acknowledgement(0, index, Said::Done)).unwrap();
        }
        db.close().unwrap();
        victim.compare(&mut figures).unwrap();
        assert_eq!(figures.comparisons, 1);
        for index in 300..400 {
            victim.model.acknowledge(history::acknowledgement(0, index, Said::Done)).unwrap();
        }
        let finding = format!("{:?}", victim.compare(&mut figures).unwrap_err());
        assert!(finding.contains("status: 1") && finding.contains("reef, 8/8, "), "{finding}");
    }

    #[test]
    fn a_key_in_another_table_and_a_table_that_came_back_are_findings() {
        // Fails if a database could mix up its tables, or forget a drop where the table is empty.
        let folder = tempfile::tempdir().unwrap();
        let parent = torture(&["--engine", "reef", "--form", "variable"]);
        let victims = parent.victims(engine("reef").unwrap(), folder.path());
        let victim = &victims[0];
        let own = victim.model.history().table(0, 0);
        let finding = |key: &str, name: Option<&str>| {
            let db = victim.open().unwrap();
            let table = name.map_or(db.clone(), |name| db.table_or_create(name).unwrap());
            table.put(key, "value").unwrap();
            let with_it = victim.pairs(&db).map(|pairs| pairs.len());
            table.remove(key).unwrap();
            let without = victim.pairs(&db).map(|pairs| pairs.len());
            name.map(|name| db.drop_table(name).unwrap());
            [with_it, without].map(|found| found.map_err(|finding| format!("{finding:?}")))
        };
        for (key, name) in [("0-2-", None), ("0-3-", Some(&*own))] {
            assert_eq!(finding(key, name), [Ok(1), Ok(0)], "{key}");
        }
        for (key, name) in [("0-2-", Some(&*own)), ("0-3-", None), ("nobody's", Some(&*own))] {
            let [with_it, without] = finding(key, name);
            assert!(with_it.unwrap_err().contains("into which it was not put"), "{key}");
            assert_eq!(without, Ok(0), "{key}");
        }
        for found in finding("0-3-", Some("0-7")) {
            assert!(found.unwrap_err().contains("table 0-7 is there, which was dropped"));
        }
        victim.empty().unwrap();
    }

    #[test]
    fn a_full_database_that_cannot_be_emptied_is_a_finding() {
        // Fails if a refused removal were passed over: WALSH that collects nothing refuses some.
        let folder = tempfile::tempdir().unwrap();
        let common = ["--form", "8/8", "--durability", "process", "--capacity", "2000000"];
        for (engine, own) in [("walsh", &["--set", "resize=0"][..]), ("reef", &[])] {
            let parent = torture(&[&["--engine", engine], &common[..], own].concat());
            let victims = parent.victims(super::engine(engine).unwrap(), folder.path());
            let db = victims[0].open().unwrap();
            let full = (0u64..).find_map(|key| db.put(key.to_le_bytes(), [7; 8]).err());
            assert!(full.unwrap().is_full());
            db.close().unwrap();
            let emptied = victims[0].empty().map_err(|finding| format!("{finding:?}"));
            match engine {
                "reef" => assert_eq!(emptied, Ok(())),
                _ => assert!(emptied.unwrap_err().contains("removals in a row one failed: ")),
            }
        }
    }

    #[test]
    fn what_a_process_says_is_counted_and_has_to_be_in_order() {
        // Fails if a write that nobody expected were passed over, if half a word counted as a
        // write, or if a process that said nothing did not count as killed early.
        let parent = torture(&["--engine", "reef"]);
        let mut victims = parent.victims(engine("reef").unwrap(), Path::new("d"));
        let (victim, mut figures) = (&mut victims[0], Figures::default());
        let words = |indexes: &[u64]| -> Vec<u8> {
            let said = indexes.iter().map(|index| history::acknowledgement(0, *index, Said::Done));
            said.flat_map(u64::to_le_bytes).collect()
        };
        victim.take_note(&[], &mut figures).unwrap();
        victim.take_note(&words(&[0, 1, 2])[..23], &mut figures).unwrap();
        assert_eq!((figures.kills, figures.early, figures.writes), (2, 1, 2));
        let finding = format!("{:?}", victim.take_note(&words(&[3]), &mut figures).unwrap_err());
        assert!(finding.contains("status: 1") && finding.contains("write 3 returned"), "{finding}");
    }

    #[test]
    fn what_a_killed_process_was_at_is_in_doubt_if_the_next_one_is_refused() {
        // Fails if nobody told the model that the process was killed.
        let parent = torture(&["--engine", "reef", "--form", "8/8", "--capacity", "4000000"]);
        let mut victims = parent.victims(engine("reef").unwrap(), Path::new("d"));
        let (victim, mut figures) = (&mut victims[0], Figures::default());
        let history = victim.model.history();
        let found = (0..).find_map(|index| match history.write(0, index) {
            Write::Single(Change { key, value }) => Some((index, (key, value?))),
            _ => None,
        });
        let (put, pair) = found.unwrap();
        let before: Vec<_> = (0..put)
            .flat_map(|index| history::acknowledgement(0, index, Said::Done).to_le_bytes())
            .collect();
        victim.take_note(&before, &mut figures).unwrap();
        let refused = history::acknowledgement(0, put, Said::Refused).to_le_bytes();
        victim.take_note(&refused, &mut figures).unwrap();
        assert_eq!((figures.writes, figures.refused), (put + 1, 1));
        assert_eq!(victim.model.compare([pair]), Ok(()));
        assert_eq!(victim.model.compare([]), Ok(()));
    }

    #[test]
    fn a_database_that_does_not_open_any_more_is_a_finding() {
        // Fails if it were passed over, or if it were told as a failure of the machine.
        let folder = tempfile::tempdir().unwrap();
        let parent = torture(&["--engine", "reef"]);
        let mut victims = parent.victims(engine("reef").unwrap(), folder.path());
        std::fs::write(&victims[0].path, [7; 20_000]).unwrap();
        let finding = format!("{:?}", victims[0].compare(&mut Figures::default()).unwrap_err());
        assert!(finding.contains("status: 1") && finding.contains("reef-0.ehdb"), "{finding}");
    }

    #[test]
    fn processes_die_at_moments_of_every_kind() {
        // Fails if none were killed while it makes or recovers its database, or none while it
        // writes; or if a seed did not give the same moments.
        let parent = torture(&[]);
        let victims = parent.victims(engine("reef").unwrap(), Path::new("d"));
        let moments: Vec<_> = (0..200).map(|kills| victims[0].moment(kills)).collect();
        assert_eq!(moments, (0..200).map(|kills| victims[0].moment(kills)).collect::<Vec<_>>());
        let count = |is_so: &dyn Fn(&(bool, Duration)) -> bool| {
            moments.iter().filter(|moment| is_so(moment)).count()
        };
        assert!((30..80).contains(&count(&|(writes, _)| *writes)), "{moments:?}");
        assert!(count(&|(writes, wait)| !writes && *wait < Duration::from_millis(4)) > 30);
        assert!(count(&|(writes, wait)| !writes && *wait > Duration::from_millis(60)) > 20);
    }
}
