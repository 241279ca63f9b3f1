//! Where results go: standard output, or a file that appears when it is complete.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::failure::{Failure, Outcome};

/// What each of the two headers of a database begins with, on a machine of either byte order.
const MAGIC: [&[u8]; 2] = [b"EVERHASH", b"HSAHREVE"];

/// Where the headers lie. Unit: bytes.
const HEADERS: [usize; 2] = [0, 4096];

/// Prints one line of results.
pub fn print(line: &str) -> Outcome {
    bytes(&[line.as_bytes(), b"\n"])
}

/// Returns a number of things: the word has an s unless there is one of them.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Prints figures as one line of JSON.
pub fn print_json(figures: &serde_json::Value) -> Outcome {
    print(&figures.to_string())
}

/// Prints bytes as they are.
pub fn bytes(parts: &[&[u8]]) -> Outcome {
    let mut out = io::stdout().lock();
    let written = parts.iter().try_for_each(|part| out.write_all(part)).and_then(|()| out.flush());
    written.map_err(|error| Failure::output(Path::new("standard output"), &error))
}

/// Something that is written to from begin to end.
pub struct Sink {
    writer: BufWriter<Target>,
    path: PathBuf,
}

enum Target {
    Stream(Box<dyn Write>),
    File(NewFile),
}

/// A file that replaces the one of that name when it is complete, and gets its permissions.
struct NewFile {
    file: NamedTempFile,
    name: PathBuf,
    permissions: Option<Permissions>,
}

impl Sink {
    /// Opens `path`, or standard output for `-`.
    pub fn open(path: &Path) -> Outcome<Sink> {
        let failed = |error: io::Error| Failure::output(path, &error);
        let (target, path) = if path == Path::new("-") {
            (Target::Stream(Box::new(io::stdout())), PathBuf::from("standard output"))
        } else if path.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(Failure::device(format_args!(
                "{}: is a directory; name a file",
                path.display()
            )));
        } else if path.metadata().is_ok_and(|found| !found.is_file()) {
            // A pipe or a device is written to and not replaced.
            let stream = std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
            (Target::Stream(Box::new(stream)), path.to_owned())
        } else if path.is_symlink() && !path.exists() {
            // The new file would take the place of the link.
            return Err(Failure::device(format_args!(
                "{}: is a symbolic link to a file that is not there; remove or mend the link",
                path.display()
            )));
        } else {
            refuse_database(path)?;
            // A link stays, and leads to the new file.
            let name = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let permissions = name.metadata().ok().map(|found| found.permissions());
            let parent = name.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = parent.unwrap_or(Path::new("."));
            // The name tells whose a file is that a killed program has left.
            let file = Builder::new().prefix(".everhash-").tempfile_in(directory);
            let file = file.map_err(|error| in_directory(directory, path, error))?;
            (Target::File(NewFile { file, name, permissions }), path.to_owned())
        };
        // Source: ours; larger buffers gain nothing measurable.
        Ok(Sink { writer: BufWriter::with_capacity(1 << 16, target), path })
    }

    /// Writes by means of `write`.
    pub fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome {
        write(&mut self.writer).map_err(|error| Failure::output(&self.path, &error))
    }

    /// Completes the output: from here on a file has its name.
    pub fn finish(self) -> Outcome {
        let Sink { writer, path } = self;
        let failed = |error: &io::Error| Failure::output(&path, error);
        match writer.into_inner().map_err(|error| failed(error.error()))? {
            Target::Stream(mut stream) => stream.flush().map_err(|error| failed(&error)),
            Target::File(NewFile { file, name, permissions }) => {
                if let Some(permissions) = permissions {
                    file.as_file().set_permissions(permissions).map_err(|error| failed(&error))?;
                }
                file.as_file().sync_all().map_err(|error| failed(&error))?;
                file.persist(&name).map(|_| ()).map_err(|error| failed(&error.error))
            }
        }
    }
}

/// Refuses to replace a database, open or not: a swapped name must not cost all of its pairs.
fn refuse_database(path: &Path) -> Outcome {
    let shown = path.display();
    match is_database(path) {
        Ok(true) => Err(Failure::usage(format_args!(
            "{shown}: is a database, which an export does not replace; name another file, or \
             remove the database first"
        ))),
        Ok(false) => Ok(()),
        // What hinders is said when the new file is made.
        Err(_) if !path.is_file() => Ok(()),
        // Nobody can tell what it is, so it stays.
        Err(error) => Err(Failure::device(format_args!(
            "{shown}: cannot be read, so that it may be a database: {error}; name another file, or \
             remove it first"
        ))),
    }
}

/// Returns whether a file begins as a database does, which if it is damaged may have one header
/// left.
pub fn is_database(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(8192).read_to_end(&mut begin)?;
    Ok(HEADERS.iter().any(|at| begin.get(*at..).is_some_and(is_header)))
}

/// Returns whether a header of a database begins here, and not a text whose first key is the magic:
/// the number of the format, in the eight bytes after it, has bytes that are zero.
fn is_header(bytes: &[u8]) -> bool {
    let version = bytes.get(8..16).unwrap_or_default();
    MAGIC.iter().any(|magic| bytes.starts_with(magic)) && version.contains(&0)
}

/// Makes the failure of an output that could not be begun. The error names a file of which the user
/// knows nothing.
fn in_directory(directory: &Path, path: &Path, error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        let directory = directory.display();
        return Failure::device(format_args!(
            "{directory}: there is no such directory; check the name, or make the directory first"
        ));
    }
    Failure::output(path, &io::Error::from(error.kind()))
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Stream(stream) => stream.write(bytes),
            // Errors of the file by its name would tell that, of which the user knows nothing.
            Target::File(new) => new.file.as_file_mut().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Stream(stream) => stream.flush(),
            Target::File(new) => new.file.as_file_mut().flush(),
        }
    }
}
