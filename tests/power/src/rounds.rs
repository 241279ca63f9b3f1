//! Cuts in a row: a process writes, power is cut, and the next start reads what is left; then the
//! next process goes on with that.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use everhash_store::{Durability, engine};
use rand::Rng;
use rand::rngs::SmallRng;
use tempfile::TempDir;

use crate::disk::{Disk, Left};
use crate::journal::{self, Told};
use crate::judge::{self, State, Thread};
use crate::machine::{FileSystem, Machine};
use crate::reader::{self, Found};
use crate::work::{THREADS, Work, seeded};

/// After how many cuts an empty disk comes.
const IN_A_ROW: u64 = 6;

/// What is tried.
#[derive(Clone, Copy)]
pub struct Case<'c> {
    pub file_system: FileSystem,
    pub engine: &'c str,
    pub durability: Durability,
    pub settings: &'c [String],
    /// Length of the disk.
    pub bytes: u64,
    /// Of how many flushes the disk heeds one.
    pub heeds: u64,
}

/// What is known of a database before a process writes to it.
struct Before {
    image: Vec<u8>,
    states: Vec<State>,
}

/// What a process left that wrote until power was cut.
struct Written {
    /// What the disk holds.
    left: Vec<u8>,
    /// What each thread had told before the cut; nothing before the database was open.
    told: Vec<Option<Told>>,
    /// What it had told when it was dead.
    all: Vec<Told>,
}

/// The machine of a case, and what came of it.
pub struct Rounds<'c> {
    case: Case<'c>,
    seed: u64,
    random: SmallRng,
    /// Keys of each thread.
    keys: usize,
    is_atomic: bool,
    has_batches: bool,
    disk: Disk,
    machine: Machine,
    folder: TempDir,
    /// The file system before there is a database.
    empty: Vec<u8>,
    boots: u64,
    operations: u64,
    refused: u64,
    mixtures: u64,
    unborn: u64,
    findings: u64,
}

impl<'c> Rounds<'c> {
    /// Starts a machine.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(case: Case<'c>, seed: u64, folder: Option<&Path>) -> Result<Self> {
        let folder = match folder {
            Some(folder) => tempfile::tempdir_in(folder)?,
            None => tempfile::tempdir()?,
        };
        let mut random = seeded(&[seed]);
        let disk = Disk::new(case.bytes, case.heeds);
        let machine = Machine::start(folder.path(), &disk, case.file_system)?;
        let is_atomic = engine(case.engine)?.capabilities.atomic_batches;
        // A batch that is refused is there in part where batches are not atomic.
        let has_batches = is_atomic || case.bytes >= case.file_system.bytes();
        Ok(Rounds {
            case,
            seed,
            // As many small tables as large ones.
            keys: random.random_range(50..100) << random.random_range(0..9),
            random,
            is_atomic,
            has_batches,
            empty: disk.image(),
            disk,
            machine,
            folder,
            boots: 0,
            operations: 0,
            refused: 0,
            mixtures: 0,
            unborn: 0,
            findings: 0,
        })
    }

    /// Cuts the power so often, prints what came of it, and returns the number of findings.
    ///
    /// # Errors
    /// Those of the system.
    pub fn cut(mut self, count: u64) -> Result<u64> {
        let mut before = self.nothing();
        for number in 0..count {
            if number % IN_A_ROW == 0 {
                before = self.nothing();
            }
            before = self.cut_once(number, before)?;
        }
        let Case { file_system, engine, durability, .. } = self.case;
        println!(
            "{}, {engine}, {durability}: {count} cuts, {} operations, {} refused, {} flushes, {} \
             databases that were not there yet, {} that say that power was lost, {} findings",
            file_system.name(),
            self.operations,
            self.refused,
            self.disk.flushes(),
            self.unborn,
            self.mixtures,
            self.findings
        );
        Ok(self.findings)
    }

    fn nothing(&self) -> Before {
        Before { image: self.empty.clone(), states: vec![vec![None; self.keys]; THREADS] }
    }

    /// Lets a process write, cuts the power, and demands that what is left is sound.
    fn cut_once(&mut self, number: u64, before: Before) -> Result<Before> {
        let work =
            Work { seed: self.seed << 32 | number, keys: self.keys, has_batches: self.has_batches };
        let Written { mut left, told, all } = self.write(number, &before.image, &work)?;
        // One that repairs leaves what it made of a mixture, which was there at no moment.
        if !self.is_relaxed() && self.random.random_ratio(1, 3) {
            left = self.cut_again(number, left)?;
        }
        match self.read(&left)? {
            Ok((Found::Sound(states), image)) => {
                match self.judge(&work, &before, &states, &told, &all) {
                    Ok(()) => return Ok(Before { image, states }),
                    Err(finding) => self.find(number, &finding, &left),
                }
            }
            Ok((Found::Mixture, _)) if self.is_relaxed() => self.mixtures += 1,
            // The engine was not yet open.
            Ok((Found::Unborn, _)) if told.contains(&None) && before.image == self.empty => {
                self.unborn += 1;
            }
            Ok((found, _)) => self.find(number, &format!("found {found:?}"), &left),
            Err(said) => self.find(number, &said, &left),
        }
        Ok(self.nothing())
    }

    /// Lets a process write until power is cut.
    fn write(&mut self, number: u64, image: &[u8], work: &Work) -> Result<Written> {
        let journals = self.folder.path().to_owned();
        journal::forget(&journals, THREADS);
        let life = match self.random.random_range(0..4) {
            0 => self.random.random_range(0..60),
            1 => self.random.random_range(0..400),
            _ => self.random.random_range(100..1600),
        };
        let (seed, keys) = (work.seed.to_string(), work.keys.to_string());
        let folder = journals.display().to_string();
        let mut arguments = vec!["--journals", &folder, "--seed", &seed, "--keys", &keys];
        if work.has_batches {
            arguments.push("--batches");
        }
        let tell = || (0..THREADS).map(|it| journal::read(&journals, it)).collect::<Vec<_>>();
        let (left, told, ended) = self.cut_at(image, ("write", &arguments), life, tell)?;
        if let Some(said) = ended {
            self.find(number, &format!("the process that wrote has ended: {said}"), &left);
        }
        let all: Vec<Told> = tell().into_iter().map(Option::unwrap_or_default).collect();
        for operation in all.iter().flat_map(|told| &told.operations) {
            self.operations += 1;
            self.refused += u64::from(operation.is_refused);
        }
        Ok(Written { left, told, all })
    }

    /// Cuts the power while the next process opens a database, or copies it and compacts it, too.
    fn cut_again(&mut self, number: u64, left: Vec<u8>) -> Result<Vec<u8>> {
        let report = self.report().display().to_string();
        let mut arguments = vec!["--report", &report];
        let mut most = 40;
        if self.random.random() {
            arguments.push("--rewrite");
            most = 300;
        }
        let life = self.random.random_range(0..most);
        match self.cut_at(&left, ("read", &arguments), life, || ()) {
            Ok((image, (), None)) => Ok(image),
            Ok((image, (), Some(said))) => {
                self.find(number, &said, &left);
                Ok(image)
            }
            // The file system is lost; the next start says so once more.
            Err(error) => {
                self.find(number, &format!("{error:#}"), &left);
                Ok(left)
            }
        }
    }

    fn is_relaxed(&self) -> bool {
        matches!(self.case.durability, Durability::Process | Durability::Interval(_))
    }

    fn report(&self) -> PathBuf {
        self.folder.path().join("report")
    }

    fn child(&self, command: (&str, &[&str])) -> Result<Child> {
        let (command, arguments) = command;
        let mut child = Command::new(std::env::current_exe()?);
        child.arg(command).args(arguments).arg("--path").arg(self.machine.database());
        child.args(["--engine", self.case.engine]);
        child.args(["--durability", &self.case.durability.to_string()]);
        if !self.case.settings.is_empty() {
            child.args(["--set", &self.case.settings.join(",")]);
        }
        Ok(child.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?)
    }

    /// Starts the machine with a disk and a process on it, and cuts the power after `life`
    /// milliseconds. Returns what the disk holds then, what `tell` told just before, and what the
    /// process said if it had ended with an error.
    fn cut_at<T>(
        &mut self,
        image: &[u8],
        command: (&str, &[&str]),
        life: u64,
        tell: impl FnOnce() -> T,
    ) -> Result<(Vec<u8>, T, Option<String>)> {
        let left = Left::any(&mut self.random);
        self.disk.restore(image);
        self.boots += 1;
        let booted = self.machine.boot(self.seed << 32 | self.boots)?;
        let mut child = self.child(command)?;
        sleep(Duration::from_millis(life));
        let told = tell();
        let (image, _) = self.disk.cut(left, &mut self.random);
        let ended = child.try_wait()?.filter(|status| !status.success());
        // It may have ended meanwhile.
        let _ = child.kill();
        let output = child.wait_with_output()?;
        booted.stop()?;
        Ok((image, told, ended.map(|_| said(&output))))
    }

    /// Starts the machine with what is left; returns what a process finds, and what the disk holds
    /// then, or what is wrong.
    fn read(&mut self, left: &[u8]) -> Result<core::result::Result<(Found, Vec<u8>), String>> {
        let (report, keys) = (self.report(), self.keys);
        // There may be none.
        let _ = std::fs::remove_file(&report);
        self.disk.restore(left);
        self.boots += 1;
        let booted = match self.machine.boot(self.seed << 32 | self.boots) {
            Ok(booted) => booted,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        };
        let name = report.display().to_string();
        let output = self.child(("read", &["--report", &name]))?.wait_with_output()?;
        booted.stop()?;
        if !output.status.success() {
            return Ok(Err(said(&output)));
        }
        let found = reader::found(&report, keys).context("the reader has ended soundly")?;
        Ok(Ok((found, self.disk.image())))
    }

    /// Demands that what is left was there at a moment, and that nothing durable is missing.
    fn judge(
        &self,
        work: &Work,
        before: &Before,
        found: &[State],
        told: &[Option<Told>],
        all: &[Told],
    ) -> core::result::Result<(), String> {
        let nothing = Told::default();
        let told: Vec<&Told> = told.iter().map(|it| it.as_ref().unwrap_or(&nothing)).collect();
        let synced = told.iter().filter_map(|told| told.synced).max();
        let is_immediate = self.case.durability == Durability::Immediate;
        let mut times = Vec::new();
        for (number, all) in all.iter().enumerate() {
            let least = judge::least(told[number], is_immediate, synced);
            let (before, found) = (&before.states[number], &found[number]);
            let thread = Thread { before, found, told: all, least };
            times.push(thread.times(work, number, self.is_atomic));
            if times[number].is_empty() {
                return Err(format!(
                    "no moment at which thread {number} had what it has now, after {least} or \
                     more of its {} operations",
                    all.operations.len()
                ));
            }
        }
        match judge::meet(&times[0], &times[1]) {
            false if !is_immediate => Err("threads are at different moments".into()),
            _ => Ok(()),
        }
    }

    /// Notes a finding; of the first one it keeps what the disk held.
    fn find(&mut self, number: u64, what: &str, left: &[u8]) {
        self.findings += 1;
        let Case { file_system, engine, durability, .. } = self.case;
        let (name, seed) = (file_system.name(), self.seed);
        eprintln!("{name}, {engine}, {durability}, seed {seed}, cut {number}: {what}");
        if self.findings == 1 {
            let name = format!("everhash-power-{}-{number}.img", std::process::id());
            let kept = std::env::temp_dir().join(name);
            match std::fs::write(&kept, left) {
                Ok(()) => eprintln!("  what the disk held: {}", kept.display()),
                Err(error) => eprintln!("  {}: {error}", kept.display()),
            }
        }
    }
}

/// Returns what a process said when it ended with an error.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().next().unwrap_or("it said nothing").trim_start_matches("Error: ").to_owned()
}
