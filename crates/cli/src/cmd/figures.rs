//! The figures of a database that is open here or elsewhere, and what happened between two looks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use everhash_store::{Db, Error};

use crate::failure::{Failure, Outcome};

/// The kinds of calls that a database counts.
pub const KINDS: [&str; 3] = ["read", "write", "sync"];

/// Where figures come from.
pub struct Source {
    database: PathBuf,
    file: PathBuf,
}

/// The figures at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The values of `everhash_info`: `engine`, `form`, `durability`, `database`.
    pub about: BTreeMap<String, String>,
    /// Every figure without labels of its own, without `everhash_`.
    single: BTreeMap<String, f64>,
    /// Calls of each kind: how many took at most so many seconds.
    calls: BTreeMap<String, Vec<(f64, f64)>>,
}

/// What happened between two samples.
pub struct Interval<'a> {
    before: &'a Sample,
    after: &'a Sample,
}

impl Source {
    /// Takes the figures that are written for `path`: the file itself if its name ends in `.prom`,
    /// else the one beside it of that name and `.prom`.
    pub fn new(path: &Path) -> Source {
        let file = match path.extension() {
            Some(end) if end == "prom" => path.to_owned(),
            _ => file_of(path),
        };
        Source { database: path.to_owned(), file }
    }

    /// Reads the figures that a program writes while it has the database open.
    pub fn published(&self) -> Outcome<Sample> {
        let file = self.file.display();
        let text = std::fs::read_to_string(&self.file).map_err(|error| {
            Failure::device(format_args!(
                "{file}: cannot be read ({error}); a program that has the database open writes it \
                 if it says so in its options (metrics_file), an import with --metrics"
            ))
        })?;
        Sample::parse(&text)
            .ok_or_else(|| Failure::input(format_args!("{file}: holds no figures of a database")))
    }

    /// As [`Source::published`]; where the database is open nowhere, it is opened for the moment.
    pub fn read(&self) -> Outcome<Sample> {
        if self.database == self.file {
            return self.published();
        }
        match Db::open_read_only(&self.database) {
            Ok(db) => Ok(Sample::parse(&db.metrics().to_string()).unwrap_or_default()),
            Err(Error::AlreadyOpen { .. } | Error::NeedsRecovery { .. }) => self.published(),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the name under which the figures of `database` are looked for.
pub fn file_of(database: &Path) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(".prom");
    name.into()
}

impl Sample {
    /// Reads the text format; `None` if it is of something else.
    fn parse(text: &str) -> Option<Sample> {
        let mut sample = Sample::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, rest) = line.strip_prefix("everhash_")?.split_once('{')?;
            let (labels, value) = rest.rsplit_once("} ")?;
            let (labels, value) = (parse_labels(labels)?, value.parse().ok()?);
            match name {
                "info" => sample.about = labels,
                "engine" => {}
                "call_seconds_bucket" => {
                    let bound = labels.get("le")?.replace("+Inf", "inf").parse().ok()?;
                    sample
                        .calls
                        .entry(labels.get("kind")?.clone())
                        .or_default()
                        .push((bound, value));
                }
                name => drop(sample.single.insert(name.to_owned(), value)),
            }
        }
        sample.about.contains_key("engine").then_some(sample)
    }

    /// Returns a figure; 0 where there is none.
    pub fn get(&self, name: &str) -> f64 {
        self.single.get(name).copied().unwrap_or_default()
    }

    /// Returns whether calls are counted.
    pub fn counts_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns how many calls of a kind there were.
    pub fn calls(&self, kind: &str) -> f64 {
        self.calls.get(kind).and_then(|counts| counts.last()).map_or(0.0, |last| last.1)
    }

    /// Returns how old the figures are. Unit: seconds.
    pub fn age(&self) -> f64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        (now.unwrap_or_default().as_secs_f64() - self.get("written_seconds")).max(0.0)
    }
}

/// Reads `name="value",...`.
fn parse_labels(mut text: &str) -> Option<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.chars();
        loop {
            match characters.next()? {
                '"' => break,
                '\\' => value.push(match characters.next()? {
                    'n' => '\n',
                    other => other,
                }),
                other => value.push(other),
            }
        }
        labels.insert(name.to_owned(), value);
        text = characters.as_str();
        text = text.strip_prefix(',').unwrap_or(text);
    }
    Some(labels)
}

impl Interval<'_> {
    /// Returns what happened from `before` to `after`.
    pub fn between<'a>(before: &'a Sample, after: &'a Sample) -> Interval<'a> {
        Interval { before, after }
    }

    /// Returns a count per second; `None` if no time has passed or the database was opened anew.
    fn rate(&self, count: impl Fn(&Sample) -> f64) -> Option<f64> {
        let seconds = self.after.get("written_seconds") - self.before.get("written_seconds");
        let more = count(self.after) - count(self.before);
        (seconds > 0.0 && more >= 0.0).then(|| more / seconds)
    }

    /// Returns how many calls of a kind there were per second.
    pub fn calls(&self, kind: &str) -> Option<f64> {
        self.rate(|sample| sample.calls(kind))
    }

    /// Returns how often a figure that only rises rose per second.
    pub fn risen(&self, name: &str) -> Option<f64> {
        self.rate(|sample| sample.get(name))
    }

    /// Returns a bound in seconds that the part `part` of the calls kept; `None` without calls.
    pub fn quantile(&self, kind: &str, part: f64) -> Option<f64> {
        let none = Vec::new();
        let (after, before) =
            (self.after.calls.get(kind)?, self.before.calls.get(kind).unwrap_or(&none));
        let below =
            |place: usize| after[place].1 - before.get(place).map_or(0.0, |(_, count)| *count);
        let all = below(after.len().checked_sub(1)?);
        let place = (0..after.len()).find(|place| below(*place) >= all * part)?;
        (all > 0.0).then(|| after[place].0)
    }
}

/// Returns a count with three digits or so: `812`, `4.1k`, `12.3M`.
pub fn short(count: f64) -> String {
    match count {
        _ if count < 9_999.5 => format!("{count:.0}"),
        _ if count < 999_950.0 => format!("{:.1}k", count / 1e3),
        _ if count < 999_950_000.0 => format!("{:.1}M", count / 1e6),
        _ => format!("{:.1}G", count / 1e9),
    }
}

/// Returns a length in bytes.
pub fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (0..4).find(|power| count < 1000.0 * 1024f64.powi(*power)).unwrap_or(4);
    let digits = usize::from(power > 0);
    format!("{:.digits$} {}", count / 1024f64.powi(power), UNITS[power as usize])
}

/// Returns a duration.
pub fn seconds(count: f64) -> String {
    match count {
        _ if count.is_infinite() => "> 8 s".into(),
        _ if count < 1e-6 => format!("{:.0} ns", count * 1e9),
        _ if count < 1e-3 => format!("{:.1} us", count * 1e6),
        _ if count < 1.0 => format!("{:.1} ms", count * 1e3),
        _ if count < 120.0 => format!("{count:.1} s"),
        _ if count < 7200.0 => format!("{:.0} min", count / 60.0),
        _ => format!("{:.1} h", count / 3600.0),
    }
}

/// Prints one line for each look, and the names of the figures before the first and every 20.
pub struct Lines {
    before: Option<Sample>,
    printed: u64,
}

impl Lines {
    pub fn new() -> Lines {
        Lines { before: None, printed: 0 }
    }

    /// Returns the line, or lines, of the next look.
    pub fn next(&mut self, sample: Sample) -> String {
        let mut text = String::new();
        if self.printed.is_multiple_of(20) {
            text = format!(
                "{:>12} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8}\n",
                "pairs", "file", "memory", "reads/s", "p99", "writes/s", "p99", "syncs/s"
            );
        }
        self.printed += 1;
        let before = self.before.as_ref().unwrap_or(&sample);
        let interval = Interval::between(before, &sample);
        let rate = |rate: Option<f64>| rate.map_or("-".into(), short);
        let p99 = |kind| interval.quantile(kind, 0.99).map_or("-".into(), seconds);
        text += &format!(
            "{:>12} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8}",
            sample.get("pairs"),
            bytes(sample.get("file_bytes")),
            bytes(sample.get("memory_bytes")),
            rate(interval.calls("read").filter(|_| sample.counts_calls())),
            p99("read"),
            rate(interval.calls("write").filter(|_| sample.counts_calls())),
            p99("write"),
            rate(interval.risen("device_syncs_total")),
        );
        if sample.get("open") == 0.0 {
            text += "  closed";
        }
        self.before = Some(sample);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u32, counts: [u32; 3]) -> Sample {
        let mut text = String::from("everhash_info{database=\"a \\\"b\\\\\",engine=\"walsh\"} 1\n");
        text += &format!("everhash_written_seconds{{database=\"a\"}} {at}\n");
        for (bound, count) in ["0.001", "0.002", "+Inf"].iter().zip(counts) {
            text += &format!(
                "everhash_call_seconds_bucket{{database=\"a\",kind=\"read\",le=\"{bound}\"}} \
                 {count}\n"
            );
        }
        Sample::parse(&text).unwrap()
    }

    #[test]
    fn what_happened_is_the_difference_of_two_looks() {
        // Fails if rates or bounds were those since open, or labels lost their escapes.
        let (before, after) = (sample(10, [90, 90, 90]), sample(12, [91, 188, 190]));
        assert_eq!(after.about["database"], "a \"b\\");
        let interval = Interval::between(&before, &after);
        assert_eq!(interval.calls("read"), Some(50.0));
        assert_eq!(interval.quantile("read", 0.01), Some(0.001));
        assert_eq!(interval.quantile("read", 0.5), Some(0.002));
        assert_eq!(interval.quantile("read", 0.98), Some(0.002));
        assert_eq!(interval.quantile("read", 0.99), Some(f64::INFINITY));
        assert_eq!(interval.quantile("write", 0.5), None);
        let opened_anew = Interval::between(&after, &before);
        assert_eq!(opened_anew.calls("read"), None);
        assert_eq!(Interval::between(&after, &after).calls("read"), None);
        assert_eq!(Interval::between(&after, &after).quantile("read", 0.5), None);
    }

    #[test]
    fn other_files_are_no_figures() {
        // Fails if `top` showed zeros for a file that has nothing to do with a database.
        for text in ["", "hello", "everhash_pairs{} x\n", "other_metric{a=\"b\"} 1\n"] {
            assert_eq!(Sample::parse(text), None, "{text}");
        }
    }

    #[test]
    fn figures_are_short_and_have_units() {
        // Fails if a figure were rounded to another one, or had another unit.
        let shorts = [0.0, 812.4, 9_999.0, 10_000.0, 4.25e6, 7e10].map(short);
        assert_eq!(shorts, ["0", "812", "9999", "10.0k", "4.2M", "70.0G"]);
        let lengths = [0.0, 999.0, 1024.0, 5e6, 3e12].map(bytes);
        assert_eq!(lengths, ["0 B", "999 B", "1.0 KiB", "4.8 MiB", "2.7 TiB"]);
        let durations = [1.28e-7, 2e-6, 0.25, 3.0, 600.0, 36_000.0].map(seconds);
        assert_eq!(durations, ["128 ns", "2.0 us", "250.0 ms", "3.0 s", "10 min", "10.0 h"]);
        // Where one unit ends and the next begins.
        let shorts = [9_999.4, 9_999.6, 999_940.0, 999_960.0, 999_940_000.0, 999_960_000.0];
        assert_eq!(shorts.map(short), ["9999", "10.0k", "999.9k", "1.0M", "999.9M", "1.0G"]);
        let lengths = [1000.0, 1_023_999.0, 1_024_000.0].map(bytes);
        assert_eq!(lengths, ["1.0 KiB", "1000.0 KiB", "1.0 MiB"]);
        let durations = [119.0, 120.0, 7_199.0, 7_200.0, f64::INFINITY].map(seconds);
        assert_eq!(durations, ["119.0 s", "2 min", "120 min", "2.0 h", "> 8 s"]);
    }

    /// Returns the text of a database at a moment, with so many calls and syncs.
    fn text(at: u32, [reads, writes, syncs]: [u32; 3]) -> String {
        let mut text = String::from("everhash_info{database=\"a\\nb\",engine=\"reef\"} 1\n");
        for (name, value) in [
            ("written_seconds", at),
            ("open", 1),
            ("pairs", 7),
            ("file_bytes", 2048),
            ("used_bytes", 1024),
            ("memory_bytes", 4096),
            ("device_syncs_total", syncs),
        ] {
            text += &format!("everhash_{name}{{database=\"a\"}} {value}\n");
        }
        for (kind, bound, count) in [("read", "0.001", reads), ("write", "0.25", writes)] {
            text += &format!(
                "everhash_call_seconds_bucket{{kind=\"{kind}\",le=\"{bound}\"}} {count}\n"
            );
        }
        text
    }

    #[test]
    fn a_line_has_each_figure_below_its_name() {
        // Fails if two figures were exchanged, if a rate were that since open, or if the names left
        // a terminal for good.
        let mut lines = Lines::new();
        let first = Sample::parse(&text(10, [100, 200, 300])).unwrap();
        assert_eq!(first.about["database"], "a\nb");
        let first = lines.next(first);
        let (names, first) = first.split_once('\n').unwrap();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let expected = ["pairs", "file", "memory", "reads/s", "p99", "writes/s", "p99", "syncs/s"];
        assert_eq!(words(names), expected);
        assert_eq!(words(first), ["7", "2.0", "KiB", "4.0", "KiB", "-", "-", "-", "-", "-"]);
        let second = lines.next(Sample::parse(&text(12, [120, 240, 306])).unwrap());
        let expected =
            ["7", "2.0", "KiB", "4.0", "KiB", "10", "1.0", "ms", "20", "250.0", "ms", "3"];
        assert_eq!(words(&second), expected);
        // And from there to the next.
        let third = lines.next(Sample::parse(&text(13, [121, 242, 309])).unwrap());
        assert!(words(&third).join(" ").contains(" 1 1.0 ms 2 250.0 ms 3"), "{third}");
        let named = |at| lines.next(Sample::parse(&text(at, [121, 242, 309])).unwrap());
        let named: Vec<_> = (14..58).map(named).map(|line| line.contains("pairs")).collect();
        let places: Vec<_> = (0..44).filter(|place| named[*place]).collect();
        assert_eq!(places, [17, 37]);
    }

    #[test]
    fn calls_that_are_not_counted_have_no_rate() {
        // Fails if whoever watches took a database that does not count for one that does nothing.
        let mut lines = Lines::new();
        for at in [10, 12] {
            let text = text(at, [0, 0, 4 * at]);
            let bare = text.lines().filter(|line| !line.contains("call_seconds"));
            let line = lines.next(Sample::parse(&bare.collect::<Vec<_>>().join("\n")).unwrap());
            let rates = if at == 10 { " - - - - -" } else { " - - - - 4" };
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(line.ends_with(&format!("4.0 KiB{rates}")), "{line}");
        }
    }
}
