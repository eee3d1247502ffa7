//! fio with an engine for iSCSI, which Debian's fio lacks: built from Debian's source of it, once, under the target folder.
//!
//! Little of fio is wanted: no other library's engines, nothing optimised. That is 10 s of processor time.

use crate::step;
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Debian packages that the build needs beside a C compiler.
pub const PACKAGES: [&str; 2] = ["make", "libiscsi-dev"];

/// Libraries that fio's configure would pick up: slow to build, or not the same everywhere.
const WITHOUT: [&str; 14] = [
    "numa", "rdma", "rados", "rbd", "http", "gfapi", "libnfs", "lex", "pmem", "xnvme", "libzbc", "tcmalloc",
    "dfs", "native",
];

/// The program in the folder of the judges, if it was built.
pub fn find(judges: &Path) -> Option<PathBuf> {
    let program = judges.join("fio-libiscsi");
    let engines = step::output(Command::new(&program).arg("--enghelp")).ok()?;
    engines.contains("libiscsi").then_some(program)
}

/// Builds it, which needs sources where this machine's packages come from.
pub fn build(judges: &Path) -> Result<()> {
    let work = judges.join("fio-libiscsi.work");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    let source = work.join("source");
    for folder in ["lists/partial", "cache/archives/partial", "source"] {
        fs::create_dir_all(work.join(folder))?;
    }
    fetch(&work)?;
    let archive = fs::read_dir(&work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().contains(".orig.tar."))
        .context("apt-get source fio brought no source")?;
    let mut unpack = Command::new("tar");
    unpack
        .arg("--extract")
        .arg("--file")
        .arg(archive)
        .arg("--strip-components=1")
        .arg("--directory")
        .arg(&source);
    step::run("unpack fio", &mut unpack)?;
    let without = WITHOUT.map(|part| format!("--disable-{part}"));
    quietly("configure fio", Command::new("./configure").arg("--enable-libiscsi").args(without), &source)?;
    quietly("make fio", Command::new("make").args(["-j2", "OPTFLAGS=", "EXTFLAGS=-w -O0", "fio"]), &source)?;
    fs::rename(source.join("fio"), judges.join("fio-libiscsi"))?;
    Ok(fs::remove_dir_all(&work)?)
}

/// Downloads the source from the mirror that this machine has its packages from. Lists of sources are asked for in a
/// folder of our own: the machine's stay as they are.
fn fetch(work: &Path) -> Result<()> {
    let (name, text) = [
        ("/etc/apt/sources.list.d/debian.sources", "mirror.sources"),
        ("/etc/apt/sources.list", "mirror.list"),
    ]
    .iter()
    .find_map(|(path, name)| Some((name, fs::read_to_string(path).ok()?)))
    .context("apt has neither debian.sources nor sources.list: where do packages come from?")?;
    let text = match name.ends_with("sources") {
        true => text
            .replace("Types: deb\n", "Types: deb-src\n")
            .replace("Types: deb deb-src\n", "Types: deb-src\n"),
        false => text.replace("\ndeb ", "\ndeb-src ").replacen(
            "deb ",
            "deb-src ",
            usize::from(text.starts_with("deb ")),
        ),
    };
    let mirror = work.join(name);
    fs::write(&mirror, text)?;
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .current_dir(work)
            .arg("--quiet")
            .arg("-o")
            .arg(format!("Dir::Etc::SourceList={}", mirror.display()));
        command.args(["-o", "Dir::Etc::SourceParts=-", "-o"]);
        command.arg(format!("Dir::State::Lists={}", work.join("lists").display())).arg("-o");
        command.arg(format!("Dir::Cache={}", work.join("cache").display())).args(arguments);
        // Else apt becomes a user who may not write here.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command
    };
    step::run("apt-get update (sources)", &mut apt_get(&["update"]))?;
    step::run("apt-get source fio", &mut apt_get(&["source", "--download-only", "fio"])).map(drop)
}

/// Runs a step whose words matter only if it fails.
fn quietly(name: &str, command: &mut Command, folder: &Path) -> Result<()> {
    let log = fs::File::create(folder.join("step.log"))?;
    command.current_dir(folder).stdout(log.try_clone()?).stderr(log);
    let ran = step::run(name, command);
    ran.map(drop).with_context(|| fs::read_to_string(folder.join("step.log")).unwrap_or_default())
}
