//! Backups of this machine: real hooks and real filesystems on loop devices, and cuts that are copies of the
//! device's file.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

/// Filesystems on loop devices.
mod loop_mount;
/// Hooks as real programs, alone and over a frozen filesystem.
mod rounds;
/// The hooks that are shipped, with the servers that they are for.
mod shipped;

use loop_mount::LoopMount;
use protect::backup::{BackupCutter, StepError, StepResult};
use std::{
    cell::RefCell,
    fs,
    future::ready,
    path::{Path, PathBuf},
    process::Command,
};
use world::{
    LocalFuture, Moment,
    real::freeze::{HelperProgram, helper_process},
};

/// Not a test by itself: the helper process of the others, which has a folder as its standard error.
#[test]
fn the_helper_process() {
    let is_helper = rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
    if is_helper {
        std::process::exit(helper_process::serve());
    }
}

fn helper_program() -> HelperProgram {
    let arguments = ["--exact", "real::the_helper_process", "--nocapture", "--test-threads=1"];
    HelperProgram { path: PathBuf::from("/proc/self/exe"), arguments: arguments.map(str::to_owned).to_vec() }
}

/// Cuts a volume by a copy of the file of its loop device: what is not stable there is not in the cut.
struct CopyCutter {
    image: PathBuf,
    cut: PathBuf,
    /// Work of a person or an application in the middle of the cut.
    meanwhile: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl CopyCutter {
    fn new(mounted: &LoopMount) -> Self {
        let cut = mounted.folder().join("cut");
        Self { image: mounted.image(), cut, meanwhile: RefCell::default() }
    }
}

impl BackupCutter for CopyCutter {
    fn hold(&self, _deadline: Moment) -> LocalFuture<StepResult> {
        Box::pin(ready(Ok(())))
    }

    fn cut(&self, _name: &str, _deadline: Moment) -> LocalFuture<StepResult> {
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        let copied = Command::new("cp").arg("--sparse=always").args([&self.image, &self.cut]).status();
        let copied = copied.is_ok_and(|status| status.success());
        Box::pin(ready(if copied { Ok(()) } else { Err(StepError("cp failed".to_owned())) }))
    }

    fn release(&self) -> LocalFuture<StepResult> {
        Box::pin(ready(Ok(())))
    }

    fn remove(&self, _name: &str) -> LocalFuture<StepResult> {
        let removed = fs::remove_file(&self.cut).map_err(|error| StepError(error.to_string()));
        Box::pin(ready(removed))
    }
}

/// Writes an executable script.
fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
