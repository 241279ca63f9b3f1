//! `everhash top`: what a database is doing, as a picture that moves.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use nix::sys::signal::{SigSet, Signal, raise};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::figures::{Interval, KINDS, Lines, Sample, Source, bytes, seconds, short};
use super::numbers::{SOME, whole};
use crate::failure::Outcome;
use crate::output;

/// How many rates of the past are drawn.
const DRAWN: usize = 40;

/// Show what a database that is open in another program is doing, until q is pressed
///
/// The program must write its figures beside the database (Options::metrics_file with the name DB
/// and .prom), as an import with --metrics does. Where standard output is no terminal, a line is
/// printed for each look instead.
#[derive(Debug, Args)]
pub struct Top {
    /// The database file, or the file with its figures, whose name ends in .prom
    #[arg(value_name = "DB")]
    path: PathBuf,
    /// Time between two looks, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    every: f64,
    /// End after so many looks
    #[arg(long, value_name = "COUNT", value_parser = whole::<u64>(SOME))]
    count: Option<u64>,
}

/// Reads a time between two looks.
pub fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds")?;
    match (0.01..=86_400.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("the time must be from 0.01 s to a day".into()),
    }
}

impl Top {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let source = Source::new(&self.path);
        let looks = self.count.unwrap_or(u64::MAX);
        let pause = Duration::from_secs_f64(self.every);
        if !io::stdout().is_terminal() {
            return print_lines(looks, pause, || source.published());
        }
        let keyboard = Keyboard::start();
        let mut screen = Screen { past: Vec::new(), before: None, styled: styled() };
        for look in 1..=looks {
            let sample = source.published()?;
            let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_row, size.ws_col));
            let (rows, columns) = size.unwrap_or((24, 80));
            let text = screen.next(sample, usize::from(columns.max(20)), keyboard.is_some());
            // One line less than there are: the end of the last one would move all of them.
            let rows = usize::from(rows.max(5)) - 1;
            let text: String = text.split_inclusive('\n').take(rows).collect();
            // The screen is cleared when there is something to show: it would take away the message
            // of a first look that fails. Then to the corner, line by line over what was there, and
            // nothing below.
            let cleared = if look == 1 { &b"\x1b[2J"[..] } else { b"" };
            let text = text.replace('\n', "\x1b[K\n");
            output::bytes(&[cleared, b"\x1b[H", text.as_bytes(), b"\x1b[J"])?;
            if look < looks && wait(pause, keyboard.as_ref()) {
                break;
            }
        }
        Ok(())
    }
}

/// Prints a line for each look.
pub fn print_lines(
    looks: u64,
    pause: Duration,
    mut read: impl FnMut() -> Outcome<Sample>,
) -> Outcome {
    let mut lines = Lines::new();
    for look in 1..=looks {
        output::print(&lines.next(read()?))?;
        if look < looks {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

/// Tells whether the terminal takes styles and nobody asks for none.
fn styled() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// The signals that end a program and of which it may take notice.
const ENDS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// The terminal while it hands over keys as they are pressed.
struct Keyboard {
    before: Termios,
}

impl Keyboard {
    /// Takes the keys; `None` where standard input is no terminal.
    fn start() -> Option<Keyboard> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut now = before.clone();
        // An interrupt comes as a key, so that the terminal is left as it was.
        now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        restore_at_signals(&before, &now);
        tcsetattr(io::stdin(), OptionalActions::Now, &now).ok()?;
        Some(Keyboard { before })
    }

    /// Waits for a key, for `pause` at most; returns whether it was one that ends the program.
    fn ends(&self, pause: Duration) -> bool {
        let stdin = io::stdin();
        let mut wanted = [rustix::event::PollFd::new(&stdin, rustix::event::PollFlags::IN)];
        let pause = rustix::event::Timespec {
            tv_sec: pause.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: pause.subsec_nanos().into(),
        };
        if !matches!(rustix::event::poll(&mut wanted, Some(&pause)), Ok(1..)) {
            return false;
        }
        const INTERRUPT: u8 = 3;
        const END: u8 = 4;
        let mut key = [0];
        // A terminal that is gone gives no key.
        !matches!(rustix::io::read(&stdin, &mut key), Ok(1))
            || matches!(key[0], b'q' | b'Q' | INTERRUPT | END)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that does not take it.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Starts a thread that restores the terminal before a signal ends the program: whoever uses it
/// next would not see what they type. Where there is no thread, a signal ends the program as it is.
fn restore_at_signals(before: &Termios, now: &Termios) {
    let ends: SigSet = ENDS.into_iter().collect();
    // The thread has the mask of this one: none but its wait takes these signals.
    if ends.thread_block().is_err() {
        return;
    }
    let (before, now) = (before.clone(), now.clone());
    let set = |modes: &Termios| {
        // Nothing can be done about a terminal that does not take it.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
    };
    let take = move || {
        while let Ok(signal) = ends.wait() {
            set(&before);
            // Once more, with its usual effect. What is ignored, as under nohup, has none.
            let _ = ends.thread_unblock();
            let _ = raise(signal);
            let _ = ends.thread_block();
            set(&now);
        }
    };
    if std::thread::Builder::new().name("everhash-signals".into()).spawn(take).is_err() {
        let _ = ends.thread_unblock();
    }
}

/// Waits; returns whether somebody wants to end.
fn wait(pause: Duration, keyboard: Option<&Keyboard>) -> bool {
    let Some(keyboard) = keyboard else {
        std::thread::sleep(pause);
        return false;
    };
    let began = Instant::now();
    while let Some(left) = pause.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        if keyboard.ends(left) {
            return true;
        }
    }
    false
}

/// What was shown, for what comes next.
struct Screen {
    /// The rates of the kinds of calls, the newest last.
    past: Vec<[f64; 3]>,
    before: Option<Sample>,
    styled: bool,
}

impl Screen {
    /// Returns the text of the next look, in lines of at most `columns`.
    fn next(&mut self, sample: Sample, columns: usize, has_keyboard: bool) -> String {
        let before = self.before.take().unwrap_or_else(|| sample.clone());
        let interval = Interval::between(&before, &sample);
        if interval.calls("read").is_some() {
            self.past.push(KINDS.map(|kind| interval.calls(kind).unwrap_or_default()));
            self.past.drain(..self.past.len().saturating_sub(DRAWN));
        }
        let mut lines = self.head(&sample, has_keyboard);
        lines.extend(contents(&sample, &interval));
        lines.push(String::new());
        if sample.counts_calls() {
            let title = format!(
                "{:<8}{:>12}{:>11}{:>11}{:>12}",
                "calls", "per second", "p50", "p99", "since open"
            );
            lines.push(self.bold(&title));
            for (place, kind) in KINDS.iter().enumerate() {
                lines.push(self.row(place, kind, &sample, &interval));
            }
            lines.push(format!("failed  {:>12}", short(sample.get("failed_calls_total"))));
        } else {
            lines.push("calls are not counted; the program may choose it (count_calls)".into());
        }
        self.before = Some(sample);
        lines.iter().map(|line| cut(line, columns) + "\n").collect()
    }

    fn head(&self, sample: &Sample, has_keyboard: bool) -> Vec<String> {
        let about = |name: &str| sample.about.get(name).map_or("", String::as_str);
        let quits = if has_keyboard { "; q quits" } else { "" };
        let state = match (sample.get("stopped") > 0.0, sample.get("open") > 0.0) {
            (true, _) => "STOPPED after a failure".to_owned(),
            (_, false) => "closed".to_owned(),
            _ => format!("open for {}", seconds(sample.get("open_seconds"))),
        };
        let name: String = about("database")
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        let title = format!("{name}: {state}");
        let age = sample.age();
        let old = if age > 5.0 { format!("; figures are {} old", seconds(age)) } else { "".into() };
        vec![
            self.bold(&title) + &old,
            format!(
                "engine {}, form {}, durability {}{quits}",
                about("engine"),
                about("form"),
                about("durability")
            ),
            String::new(),
        ]
    }

    fn row(&self, place: usize, kind: &str, sample: &Sample, interval: &Interval<'_>) -> String {
        let bound = |part| interval.quantile(kind, part).map_or("-".into(), seconds);
        let rates: Vec<f64> = self.past.iter().map(|rates| rates[place]).collect();
        format!(
            "{:<8}{:>12}{:>11}{:>11}{:>12}  {}",
            format!("{kind}s"),
            interval.calls(kind).map_or("-".into(), short),
            bound(0.5),
            bound(0.99),
            short(sample.calls(kind)),
            drawn(&rates)
        )
    }

    fn bold(&self, text: &str) -> String {
        if self.styled { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns the lines about what the database holds.
fn contents(sample: &Sample, interval: &Interval<'_>) -> Vec<String> {
    let (file, used) = (sample.get("file_bytes"), sample.get("used_bytes"));
    let percent = if file > 0.0 { 100.0 * used / file } else { 0.0 };
    let (pairs, memory) = (sample.get("pairs"), sample.get("memory_bytes"));
    let each = |bytes: f64| if pairs > 0.0 { format!("{:.1}", bytes / pairs) } else { "-".into() };
    let syncs = interval.risen("device_syncs_total").map_or("-".into(), short);
    vec![
        format!("pairs   {:>12}   grown {} times", pairs, sample.get("growth_steps_total")),
        format!("file    {:>12}   {} B a pair, {percent:.0} % in use", bytes(file), each(file)),
        format!("memory  {:>12}   {} B a pair", bytes(memory), each(memory)),
        format!("device  {:>12}   syncs per second", syncs),
    ]
}

/// Draws rates as bars beside each other, the highest one as high as a line.
fn drawn(rates: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = rates.iter().copied().fold(0.0, f64::max);
    let bar = |rate: f64| match most > 0.0 {
        true => BARS[((rate / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
        false => BARS[0],
    };
    rates.iter().map(|rate| bar(*rate)).collect()
}

/// Cuts a line to so many characters that are seen; styles are not.
fn cut(line: &str, columns: usize) -> String {
    let (mut seen, mut in_style, mut text) = (0, false, String::new());
    for character in line.chars() {
        in_style |= character == '\x1b';
        if in_style || seen < columns {
            text.push(character);
        }
        seen += usize::from(!in_style);
        in_style &= character != 'm';
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_where_the_terminal_ends_and_its_style_ends_too() {
        // Fails if a long line broke the picture, or left the terminal bold.
        assert_eq!(cut("\x1b[1mabcdef\x1b[0m tail", 4), "\x1b[1mabcd\x1b[0m");
        assert_eq!(cut("▁▂▃", 2), "▁▂");
        assert_eq!(cut("ab", 2), "ab");
    }

    #[test]
    fn bars_are_as_high_as_their_rates() {
        // Fails if a bar were wrong, or no rate at all a division by zero.
        assert_eq!(drawn(&[0.0, 1.0, 4.0, 8.0]), "▁▁▄█");
        assert_eq!(drawn(&[0.0, 0.0]), "▁▁");
        assert_eq!(drawn(&[]), "");
    }

    /// Returns the figures of a database at a moment.
    fn sample(at: u32, [reads, writes, failed]: [u32; 3], counted: bool) -> Sample {
        let mut text = String::from(
            "everhash_info{database=\"a\\nb\",engine=\"reef\",form=\"8/8\",\
             durability=\"batch\"} 1\n",
        );
        for (name, value) in [
            ("written_seconds", at),
            ("open", 1),
            ("open_seconds", 90),
            ("pairs", 10),
            ("file_bytes", 2000),
            ("used_bytes", 500),
            ("memory_bytes", 300),
            ("growth_steps_total", 4),
            ("device_syncs_total", 3 * at),
            ("failed_calls_total", failed),
        ] {
            text += &format!("everhash_{name}{{database=\"a\"}} {value}\n");
        }
        let fast =
            [("read", reads), ("write", writes / 2)].map(|(kind, count)| (kind, "0.25", count));
        let all = [("read", reads), ("write", writes)].map(|(kind, count)| (kind, "0.5", count));
        for (kind, bound, count) in fast.into_iter().chain(all).filter(|_| counted) {
            text += &format!(
                "everhash_call_seconds_bucket{{kind=\"{kind}\",le=\"{bound}\"}} {count}\n"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.prom");
        std::fs::write(&path, text).unwrap();
        Source::new(&path).published().unwrap()
    }

    #[test]
    fn the_picture_has_each_figure_in_its_place() {
        // Fails if two figures were exchanged, or a name of a file could write to the terminal.
        let mut screen = Screen { past: Vec::new(), before: None, styled: false };
        screen.next(sample(10, [100, 200, 1], true), 100, true);
        let text = screen.next(sample(12, [120, 300, 2], true), 100, true);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("a\u{fffd}b: open for 90.0 s; figures are "), "{text}");
        assert_eq!(lines[1], "engine reef, form 8/8, durability batch; q quits");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[3]), "pairs 10 grown 4 times");
        assert_eq!(words(lines[4]), "file 2.0 KiB 200.0 B a pair, 25 % in use");
        assert_eq!(words(lines[5]), "memory 300 B 30.0 B a pair");
        assert_eq!(words(lines[6]), "device 3 syncs per second");
        assert_eq!(words(lines[8]), "calls per second p50 p99 since open");
        assert_eq!(words(lines[9]), "reads 10 250.0 ms 250.0 ms 120 \u{2588}");
        assert_eq!(words(lines[10]), "writes 50 250.0 ms 500.0 ms 300 \u{2588}");
        assert_eq!(words(lines[11]), "syncs 0 - - 0 \u{2581}");
        assert_eq!(words(lines[12]), "failed 2");
        // Each kind has bars of its own, and no more than there is room for.
        let text = screen.next(sample(14, [160, 301, 2], true), 100, true);
        assert!(
            text.contains("\u{2585}\u{2588}\n") || text.contains("\u{2584}\u{2588}\n"),
            "{text}"
        );
        assert!(text.contains("\u{2588}\u{2581}\n"), "{text}");
        for at in 15..80 {
            screen.next(sample(at, [160 + at, 301 + at, 2], true), 100, true);
        }
        assert_eq!(screen.past.len(), DRAWN);
    }

    #[test]
    fn calls_that_are_not_counted_are_not_shown_as_none() {
        // Fails if a database that does not count its calls looked like one that does nothing.
        let mut screen = Screen { past: Vec::new(), before: None, styled: false };
        let text = screen.next(sample(10, [0; 3], false), 100, false);
        assert!(
            text.contains("calls are not counted") && !text.contains("per second   "),
            "{text}"
        );
        assert!(!text.contains("q quits"), "{text}");
    }
}
