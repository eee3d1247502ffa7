//! The judges of the package: lintian, and its life in a clean Debian, made by mmdebstrap.
//!
//! A judge that is missing is left out with a line. Nothing outside the target folder is written: the clean Debian lies in
//! a temporary folder there, and what is mounted in it is seen by nobody else.

use super::is_here;
use crate::step;
use anyhow::{Context, Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub fn judge(package: &Path, target: &Path) -> Result<()> {
    if is_here("lintian", "lintian") {
        let mut lintian = Command::new("lintian");
        lintian.args(["--fail-on", "error", "--allow-root"]).arg(package);
        step::run("lintian", &mut lintian)?;
    }
    if !is_here("mmdebstrap", "mmdebstrap") {
        return Ok(());
    }
    if step::output(Command::new("id").arg("-u"))?.trim() != "0" {
        println!("skipped: a clean Debian needs root");
        return Ok(());
    }
    let root = clean_debian(package, target)?;
    let port = super::free_port()?;
    let mut service = Command::new("unshare");
    service.args(["--mount", "--propagation", "private", "sh"]);
    service.arg(step::workspace_root().join("packaging/judge/service.sh"));
    step::run("service.sh", service.arg(&root).arg(package).arg(port.to_string()))?;
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))
}

/// A root folder of this machine's Debian, with what the package depends on.
fn clean_debian(package: &Path, target: &Path) -> Result<PathBuf> {
    let root = target.join("debian/root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let release = fs::read_to_string("/etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("/etc/os-release has no VERSION_CODENAME: this is no Debian")?;
    let mut make = Command::new("mmdebstrap");
    make.args(["--mode=root", "--variant=minbase", "--quiet"]);
    make.arg(format!("--include={}", dependencies(package)?.join(",")));
    make.arg(suite).arg(&root).args(sources()?);
    step::run("mmdebstrap", &mut make)?;
    Ok(root)
}

/// Names of the packages that the package depends on; of alternatives the first.
fn dependencies(package: &Path) -> Result<Vec<String>> {
    let field = step::output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"))?;
    let first = |alternatives: &str| alternatives.split(['|', '(']).next().unwrap_or("").trim().to_owned();
    Ok(field.trim().split(',').map(first).collect())
}

/// The files that say where this machine has Debian's packages from.
fn sources() -> Result<Vec<PathBuf>> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let folder = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(folder.map(|entry| entry.path()));
    files.retain(|path| {
        path.extension().is_some_and(|ending| ending == "list" || ending == "sources")
            && fs::read_to_string(path).is_ok_and(|text| text.contains("/debian"))
    });
    files.sort();
    if files.is_empty() {
        bail!("/etc/apt names no source of Debian's packages");
    }
    Ok(files)
}
