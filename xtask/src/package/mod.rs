//! `cargo xtask package`: the Debian package, and a container of its files.
//!
//! Reading order: this file (the build), `licences` (of the libraries in the program), `judge` (lintian, and a service's life in
//! a clean Debian), `container`.

mod container;
mod judge;
mod licences;

use crate::step;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

/// Fixed: another version may write other maintainer scripts.
const CARGO_DEB: &str = "3.8.0";

#[derive(Args)]
pub struct PackageOptions {
    /// Judge the package: lintian, and its installation, service and purge in a clean Debian (mmdebstrap, as root); with
    /// --container the image's service too
    #[arg(long)]
    pub judge: bool,
    /// Make a container image of the package's files, as an archive (buildah, as root)
    #[arg(long)]
    pub container: bool,
    /// Take the package that was built before
    #[arg(long)]
    pub no_build: bool,
}

pub fn run(options: &PackageOptions) -> Result<()> {
    let target = step::target_directory()?;
    let package = match options.no_build {
        true => newest_package(&target)?,
        false => build(&target)?,
    };
    println!("{}", package.display());
    if options.judge {
        judge::judge(&package, &target)?;
    }
    if options.container {
        container::build(&package, &target, options.judge)?;
    }
    Ok(())
}

/// Builds the program, what it says of itself, and the package.
fn build(target: &Path) -> Result<PathBuf> {
    let deb = cargo_deb(target)?;
    step::run(
        "cargo build --release",
        step::cargo().args(["build", "--release", "--locked", "--package", "cli"]),
    )?;
    let staging = target.join("release/package");
    if staging.exists() {
        fs::remove_dir_all(&staging)?;
    }
    fs::create_dir_all(staging.join("completions"))?;
    let program = target.join("release/spindle");
    let date = date_of_sources()?;
    let mut man = Command::new(&program);
    step::run("spindle man", man.arg("man").arg(staging.join("man")).args(["--date", &date]))?;
    let licences = staging.join("third-party-licences.txt");
    fs::write(&licences, licences::texts()?)?;
    let pages = fs::read_dir(staging.join("man"))?.flatten().map(|page| page.path());
    // Without a name and a time in it: the same sources make the same package.
    let mut gzip = Command::new("gzip");
    step::run("gzip", gzip.args(["-9", "--no-name"]).args(pages).arg(&licences))?;
    for (shell, file) in [("bash", "spindle"), ("zsh", "_spindle"), ("fish", "spindle.fish")] {
        let script = step::output(Command::new(&program).args(["completions", shell]))?;
        fs::write(staging.join("completions").join(file), script)?;
    }
    let folder = target.join("debian");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut package = Command::new(deb);
    package.args(["--package", "cli", "--no-build", "--strip", "--output"]).arg(&folder);
    package.current_dir(step::workspace_root()).env("CARGO_TARGET_DIR", target);
    step::run("cargo deb", &mut package)?;
    newest_package(target)
}

/// The program cargo-deb, which is built below the target folder if it is missing: about two minutes on two cores.
fn cargo_deb(target: &Path) -> Result<PathBuf> {
    let own = target.join("tools/bin/cargo-deb");
    let is_right = |program: &Path| {
        step::output(Command::new(program).arg("--version")).is_ok_and(|version| version.contains(CARGO_DEB))
    };
    if let Some(program) = [own.clone(), PathBuf::from("cargo-deb")].into_iter().find(|path| is_right(path)) {
        return Ok(program);
    }
    let mut install = step::cargo();
    install.args(["install", "cargo-deb", "--locked", "--version", CARGO_DEB, "--root"]);
    step::run("cargo install cargo-deb", install.arg(target.join("tools")))?;
    Ok(own)
}

/// The day of the last commit; of sources without git, none.
fn date_of_sources() -> Result<String> {
    let mut log = Command::new("git");
    log.args(["log", "-1", "--format=%cs"]).current_dir(step::workspace_root());
    Ok(step::output(&mut log).unwrap_or_default().trim().to_owned())
}

fn newest_package(target: &Path) -> Result<PathBuf> {
    let folder = target.join("debian");
    let entries = fs::read_dir(&folder).with_context(|| format!("{} is missing", folder.display()))?;
    let packages = entries.flatten().map(|entry| entry.path());
    let mut packages: Vec<PathBuf> =
        packages.filter(|path| path.extension().is_some_and(|ending| ending == "deb")).collect();
    match (packages.pop(), packages.is_empty()) {
        (Some(package), true) => Ok(package),
        (Some(_), false) => bail!("several packages in {}: remove the old ones", folder.display()),
        (None, _) => bail!("no package in {}: leave out --no-build", folder.display()),
    }
}

/// A port of this machine that nobody uses.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// True if a program is there; else a line says which judge is left out, and how to install it.
fn is_here(program: &str, package: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Not all of them are in an ordinary user's path.
    let mut folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    let is_here = folders.any(|folder| folder.join(program).is_file());
    if !is_here {
        println!("skipped: {program} is missing. Install it: apt-get install {package}");
    }
    is_here
}
