//! Where records come from: a file or standard input, line by line, with bounded memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use everhash_store::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::failure::{Failure, Outcome};
use crate::output;

/// The longest line that can hold a record. Unit: bytes.
///
/// Source: JSON may write every byte as `\u00XX`, six characters; the rest is its frame.
const MAX_LINE_BYTES: usize = 6 * (MAX_KEY_BYTES + MAX_VALUE_BYTES) + 1024;

/// The lines of an input.
pub struct Lines {
    reader: Box<dyn BufRead>,
    /// How the input is called in messages.
    pub name: PathBuf,
    /// Length of the input, if it is known. Unit: bytes.
    pub bytes: Option<u64>,
    /// Bytes read so far.
    pub position: u64,
    /// Number of the line read last; the first one is 1.
    pub number: u64,
    line: Vec<u8>,
    /// Whether no line end follows the line read last.
    pub is_unended: bool,
}

impl Lines {
    /// Opens `path`, or standard input for `-`.
    pub fn open(path: &Path) -> Outcome<Lines> {
        if path == Path::new("-") {
            return Ok(Lines::of(Box::new(BufReader::new(io::stdin())), "standard input", None));
        }
        let shown = path.display();
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::input(format_args!("{shown}: there is no such file; check the name"))
            }
            io::ErrorKind::PermissionDenied => Failure::input(format_args!(
                "{shown}: permission denied; check the owner and mode of the file"
            )),
            _ => Failure::input(format_args!("{shown}: cannot be opened: {error}; check the name")),
        })?;
        let found = file
            .metadata()
            .map_err(|error| Failure::input(format_args!("{shown}: cannot be read: {error}")))?;
        if found.is_dir() {
            return Err(Failure::input(format_args!("{shown}: is a directory; name a file")));
        }
        // Whoever moves a database would search its bytes for a line.
        if found.is_file() && output::is_database(path).unwrap_or(false) {
            return Err(Failure::input(format_args!(
                "{shown}: is a database, and import reads text; export it first, or copy it with \
                 everhash backup"
            )));
        }
        let bytes = found.is_file().then_some(found.len());
        // Source: ours; a record is rarely longer.
        Ok(Lines::of(Box::new(BufReader::with_capacity(1 << 16, file)), path, bytes))
    }

    /// Takes the lines of `reader`.
    pub fn of(reader: Box<dyn BufRead>, name: impl Into<PathBuf>, bytes: Option<u64>) -> Lines {
        let (name, line) = (name.into(), Vec::new());
        Lines { reader, name, bytes, position: 0, number: 0, line, is_unended: false }
    }

    /// Returns the next line without its end, `\n` or `\r\n`; `None` at the end.
    pub fn next_line(&mut self) -> Outcome<Option<&[u8]>> {
        self.line.clear();
        let mut limited = self.reader.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| {
            let what = format_args!(
                "cannot be read behind byte {}: {error}; check the device, and import again",
                self.position
            );
            wrong(&self.name, self.number + 1, what)
        })?;
        if read == 0 {
            return Ok(None);
        }
        self.position += read as u64;
        self.number += 1;
        self.is_unended = self.line.pop_if(|byte| *byte == b'\n').is_none();
        if !self.is_unended {
            self.line.pop_if(|byte| *byte == b'\r');
        } else if read > MAX_LINE_BYTES {
            return Err(self.wrong("the line is longer than any record can be; split its value"));
        }
        Ok(Some(&self.line))
    }

    /// Makes the failure of the line that was read last.
    pub fn wrong(&self, what: impl std::fmt::Display) -> Failure {
        wrong(&self.name, self.number, what)
    }
}

/// Makes the failure of the line `number` of the input `name`.
pub fn wrong(name: &Path, number: u64, what: impl std::fmt::Display) -> Failure {
    Failure::input(format_args!("{}:{number}: {what}", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that ends with an error of its device.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the device is gone"))
        }
    }

    #[test]
    fn a_device_that_fails_is_named_with_the_line_that_it_failed_in() {
        // Fails if the line before were named, of which there is none for the first one, or if
        // nobody were told how far the input was read.
        for (text, place) in [
            ("", "in:1: cannot be read behind byte 0: "),
            ("a\tb\n", "in:2: cannot be read behind byte 4: "),
            ("a\tb\nc\td\n", "in:3: cannot be read behind byte 8: "),
        ] {
            let reader = BufReader::new(text.as_bytes().chain(Broken));
            let mut lines = Lines::of(Box::new(reader), "in", None);
            let failure = loop {
                match lines.next_line() {
                    Ok(line) => assert!(line.is_some()),
                    Err(failure) => break format!("{failure:?}"),
                }
            };
            assert!(failure.contains(place) && failure.contains("the device is gone; check"));
        }
    }

    #[test]
    fn the_longest_record_fits_into_a_line_in_its_longest_form() {
        // Fails if an export could not be imported: a control character takes six.
        let line = |length: usize| {
            let (bytes, mut line) = (vec![1; length], Vec::new());
            crate::records::jsonl::write(&bytes, &bytes, &mut line).unwrap();
            line.len()
        };
        assert_eq!(line(100) - line(0), 6 * 200);
        assert!(line(0) + 6 * (MAX_KEY_BYTES + MAX_VALUE_BYTES) <= MAX_LINE_BYTES);
    }

    #[test]
    fn the_length_of_a_file_is_known_and_that_of_a_pipe_is_not() {
        // Fails if a bar had no end, or one that is never reached.
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a\t1\n").unwrap();
        let bytes = |path: &Path| Lines::open(path).map(|lines| lines.bytes).unwrap();
        assert_eq!(bytes(file.path()), Some(4));
        assert_eq!(bytes(Path::new("/dev/null")), None);
        assert_eq!(bytes(Path::new("-")), None);
    }
}
