//! What the system does for a power cut: a loop device over the disk, a file system on it, and
//! another name for the boot, because for a database the machine has started anew.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::disk::{Disk, NAME};

/// Where Linux names the boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// How often something that takes a moment is tried.
const TRIES: u32 = 100;

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(20);

/// A file system to be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum FileSystem {
    /// With a journal, the default of most distributions.
    Ext4,
    /// ext4 without a journal, repaired by e2fsck at every start.
    Ext2,
    /// XFS.
    Xfs,
    /// Btrfs, which writes elsewhere.
    Btrfs,
}

impl FileSystem {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext2 => "ext4 without a journal",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// Returns the least size that it likes. Unit: bytes.
    pub fn bytes(self) -> u64 {
        let megabytes = match self {
            FileSystem::Ext4 | FileSystem::Ext2 => 128,
            FileSystem::Xfs => 320,
            FileSystem::Btrfs => 256,
        };
        megabytes << 20
    }

    /// Returns what makes one, without telling the device what is free.
    fn make(self) -> &'static [&'static str] {
        match self {
            FileSystem::Ext4 => &["mkfs.ext4", "-q", "-E", "nodiscard"],
            FileSystem::Ext2 => &["mkfs.ext4", "-q", "-E", "nodiscard", "-O", "^has_journal"],
            FileSystem::Xfs => &["mkfs.xfs", "-q", "-K", "-f"],
            FileSystem::Btrfs => &["mkfs.btrfs", "-q", "-K", "-f"],
        }
    }

    /// Returns the type and the options with which it is mounted.
    fn mount(self) -> [&'static str; 4] {
        match self {
            FileSystem::Ext4 | FileSystem::Ext2 => ["-t", "ext4", "-o", "nodiscard"],
            FileSystem::Xfs => ["-t", "xfs", "-o", "nodiscard"],
            FileSystem::Btrfs => ["-t", "btrfs", "-o", "nodiscard"],
        }
    }
}

/// Runs a program of the system; returns what it printed.
fn run(program: &str, arguments: &[&str], statuses: &[i32]) -> Result<String> {
    let said = Command::new(program).args(arguments).output();
    let said = said.with_context(|| format!("{program} is missing"))?;
    if !said.status.code().is_some_and(|status| statuses.contains(&status)) {
        let text = String::from_utf8_lossy(&said.stderr);
        bail!("{program} {}: {}: {}", arguments.join(" "), said.status, text.trim());
    }
    Ok(String::from_utf8_lossy(&said.stdout).trim().into())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("our own folder has a name in UTF-8")
}

/// Waits until the kernel has let go of a device.
fn wait_for(device: &str) -> Result<()> {
    let name = Path::new(device).file_name().context("a device has a name")?;
    let used = Path::new("/sys/block").join(name).join("loop/backing_file");
    for _ in 0..TRIES {
        if !used.exists() {
            return Ok(());
        }
        sleep(PAUSE);
    }
    bail!("{device} is still in use")
}

/// The folder in which everything lies, and the disk that the kernel knows.
pub struct Machine {
    folder: PathBuf,
    file_system: FileSystem,
    /// Unmounted when it goes.
    _session: fuser::BackgroundSession,
}

impl Machine {
    /// Gives a disk to the kernel and makes a file system on it.
    ///
    /// # Errors
    /// Those of the system: it takes root, and some programs.
    pub fn start(folder: &Path, disk: &Disk, file_system: FileSystem) -> Result<Self> {
        for name in ["kernel", "mounted"] {
            std::fs::create_dir_all(folder.join(name))?;
        }
        let session = fuser::spawn_mount(disk.clone(), folder.join("kernel"), &Default::default());
        let session = session.context("no file system in user space; are you root?")?;
        let machine = Machine { folder: folder.into(), file_system, _session: session };
        let device = machine.attach()?;
        let (program, arguments) = file_system.make().split_first().expect("a program");
        run(program, &[arguments, &[&device]].concat(), &[0])?;
        run("sync", &[&device], &[0])?;
        run("losetup", &["-d", &device], &[0])?;
        wait_for(&device)?;
        Ok(machine)
    }

    /// Returns where the database lies while the file system is mounted.
    pub fn database(&self) -> PathBuf {
        self.folder.join("mounted").join("pairs.ehdb")
    }

    fn attach(&self) -> Result<String> {
        let file = self.folder.join("kernel").join(NAME);
        // Another program may take the same device at the same time.
        let mut tries = 0;
        loop {
            match run("losetup", &["-f", "--show", text(&file)], &[0]) {
                Err(_) if tries < TRIES => tries += 1,
                device => return device,
            }
            sleep(PAUSE);
        }
    }

    /// Starts the machine, in a boot of its own: mounts the file system, which recovers.
    ///
    /// # Errors
    /// Those of the system.
    pub fn boot(&self, number: u64) -> Result<Booted<'_>> {
        let file = self.folder.join("boot");
        std::fs::write(&file, format!("{number:032x}\n"))?;
        // The one before, if there is one.
        let _ = run("umount", &[BOOT], &[0]);
        run("mount", &["--bind", text(&file), BOOT], &[0])?;
        let device = self.attach()?;
        let mounted = self.mount(&device);
        // As soon as it is unmounted, also if this process is killed; or at once if it is not.
        run("losetup", &["-d", &device], &[0])?;
        mounted.map(|()| Booted { machine: self, device })
    }

    fn mount(&self, device: &str) -> Result<()> {
        if self.file_system == FileSystem::Ext2 {
            // 1: it has mended something.
            run("e2fsck", &["-y", device], &[0, 1])?;
        }
        let mounted = self.folder.join("mounted");
        let arguments = [&self.file_system.mount()[..], &[device, text(&mounted)]].concat();
        run("mount", &arguments, &[0])?;
        Ok(())
    }
}

/// A machine that runs.
pub struct Booted<'m> {
    machine: &'m Machine,
    device: String,
}

impl Booted<'_> {
    /// Unmounts the file system: a disk without power takes nothing of what that writes.
    ///
    /// # Errors
    /// Those of the system.
    pub fn stop(self) -> Result<()> {
        let mounted = self.machine.folder.join("mounted");
        // A process that was just killed may hold it for a moment.
        let mut tries = 0;
        while let Err(error) = run("umount", &[text(&mounted)], &[0]) {
            tries += 1;
            if tries == TRIES {
                return Err(error);
            }
            sleep(PAUSE);
        }
        wait_for(&self.device)
    }
}
