//! A data directory as `initdb` makes it, made once for all tests and unpacked for every server.
//!
//! It is one file, so that it exists as a whole or not at all.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::binaries::{Binaries, run};
use crate::shared;

/// The options of `initdb`.
const INITDB: [&str; 9] = ["-A", "trust", "-U", "postgres", "-k", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"];

/// Unpacks a fresh data directory as `directory`/data.
pub(super) fn unpack(binaries: &Binaries, directory: &Path) {
    let template = File::open(made(binaries)).expect("a template that was made can be read");
    run(binaries.as_user("tar").arg("-xf").arg("-").arg("-C").arg(directory).stdin(template));
}

/// Makes a data directory.
pub(super) fn make(binaries: &Binaries, data: &Path) {
    run(binaries.command("initdb").args(INITDB).arg("-D").arg(data));
}

/// The path of the packed template. The first process makes it, while the others wait.
fn made(binaries: &Binaries) -> PathBuf {
    let mut key = DefaultHasher::new();
    (binaries.identity(), INITDB).hash(&mut key);
    let name = format!("postgres-{:016x}", key.finish());
    let template = shared::directory().join(format!("{name}.tar"));
    if template.exists() {
        return template;
    }
    let lock = shared::lockable(&format!("{name}.lock"));
    lock.lock().expect("the lock file can be locked");
    if !template.exists() {
        let workshop = tempfile::tempdir().expect("a temporary directory can be made");
        binaries.own(workshop.path());
        make(binaries, &workshop.path().join("data"));
        let packed = shared::directory().join(format!("{name}.making"));
        let file = File::create(&packed).expect("the template can be written");
        // Both ends are opened here, since the user that runs PostgreSQL cannot access the
        // directory.
        run(binaries.as_user("tar").arg("-cf").arg("-").arg("-C").arg(workshop.path()).arg("data").stdout(file));
        std::fs::rename(&packed, &template).expect("the template can be renamed");
    }
    template
}
