//! A file system of a few megabytes in memory, visible only to the server and this test.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use punctual_testkit::process::{Process, Serve};
use tempfile::TempDir;

use crate::it::world::{PUNCTUAL, SOON};

/// The file that occupies the space until it is deleted.
const BALLAST: &str = "ballast";

/// A small disk. A process that does nothing else keeps it mounted, in a namespace of its own.
pub struct SmallDisk {
    keeper: Process,
    place: TempDir,
}

impl SmallDisk {
    /// Mounts a disk of this many bytes.
    pub async fn mount(bytes: u64) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory can be made");
        let script = r#"mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec sleep 300"#;
        let mut command = Command::new("unshare");
        command.arg(if is_root() { "-m" } else { "-Urm" }).args(["sh", "-c", script, "sh"]);
        command.arg(bytes.to_string()).arg(place.path());
        let mut keeper = Process::spawn(command);
        keeper.line("mounted", SOON).await;
        Self { keeper, place }
    }

    /// A server with its data on this disk.
    pub fn serve(&self) -> Serve {
        Serve::new(PUNCTUAL, self.place.path().join("data")).under(self.enter())
    }

    /// The server's files, in a place that SQLite can open.
    pub fn copy(&self) -> TempDir {
        let copy = tempfile::tempdir().expect("a temporary directory can be made");
        for file in std::fs::read_dir(self.seen_from_here().join("data")).expect("the server has made it") {
            let file = file.expect("a directory can be read");
            std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("a file can be copied");
        }
        copy
    }

    /// Occupies this many bytes.
    pub fn load(&self, bytes: usize) {
        std::fs::write(self.seen_from_here().join(BALLAST), vec![0; bytes]).expect("there is still room");
    }

    /// Occupies all free bytes.
    pub fn load_all(&self) {
        let mut ballast = File::create(self.seen_from_here().join(BALLAST)).expect("a file can be made");
        while ballast.write_all(&[0; 4096]).is_ok() {}
    }

    /// Frees them.
    pub fn unload(&self) {
        std::fs::remove_file(self.seen_from_here().join(BALLAST)).expect("it was loaded");
    }

    /// Makes it read-only.
    pub fn forbid_writing(&self) {
        let mut words = self.enter().into_iter();
        let mut command = Command::new(words.next().expect("invariant: it begins with a program"));
        let done = command.args(words).args(["mount", "-o", "remount,bind,ro"]).arg(self.place.path()).status();
        assert!(done.expect("nsenter runs").success(), "it can be mounted again");
    }

    fn enter(&self) -> Vec<OsString> {
        let keeper = self.keeper.id().to_string();
        let mut words: Vec<OsString> = ["nsenter", "--target", &keeper, "--mount"].map(OsString::from).into();
        if !is_root() {
            words.extend(["--user", "--preserve-credentials"].map(OsString::from));
        }
        words
    }

    fn seen_from_here(&self) -> PathBuf {
        let path = self.place.path().strip_prefix("/").expect("invariant: a temporary directory has an absolute path");
        Path::new("/proc").join(self.keeper.id().to_string()).join("root").join(path)
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").expect("invariant: there is a /proc").uid() == 0
}
