//! The outside judges: programs that know nothing of Spindle and read what it wrote, or measure what it measured.
//!
//! | judge | from | judges |
//! |---|---|---|
//! | fio | Debian `fio` | latencies and rates of the same path |
//! | esedbinfo, esedbexport | Debian `libesedb-utils` | that our databases are what the format says |
//! | curl | Debian `curl` | the API over TLS, sessions of browsers |
//! | nbdinfo, nbdcopy | Debian `libnbd-bin` | our NBD server |
//! | iscsi-ls, iscsi-test-cu | Debian `libiscsi-bin` | our iSCSI target |
//! | fio with libiscsi | Debian's source of fio, built under the target folder | our iSCSI target, across kills |
//! | tgtd | Debian `tgt` | our iSCSI initiator |
//! | ddrescuelog | Debian `gddrescue` | the map of what `pool salvage` could not read |
//! | promtool, prometheus | Debian `prometheus` | our metrics, dashboard and alert rules |
//! | etcd, etcdctl | Debian `etcd-server`, `etcd-client` | failover without a person, with etcd as the witness |
//! | restic | Debian `restic` | vaults |
//! | dummy-ups, upsmon | Debian `nut-server`, `nut-client` | `spindle power` |
//! | qemu-img, qemu-io | Debian `qemu-utils`, with `qemu-block-extra` for iSCSI | our servers |
//! | iPXE, in QEMU's network cards | Debian `qemu-system-x86` | boot from a volume |
//! | ceph-mon, ceph-mgr, ceph-osd, rbd | Debian packages of their names and `ceph-common`, for full runs | pools on Ceph's block devices |
//! | schemathesis | PyPI, in an environment of its own under the target folder, for full runs | the API |
//! | Chromium, driven by Playwright | Debian `chromium`; PyPI, as above | the web console |
//! | axe-core | npm, where that is there, under the target folder, for full runs | that everybody can use the web console |
//! | dissect.esedb | PyPI, in an environment of its own under the target folder | our databases, by a second reader |
//! | Linux's initiator and multipath in an emulated guest | Debian packages unpacked under the target folder, for full runs | our iSCSI target |
//! | real databases, libesedb | PyPI, under the target folder | `verify`, which must find them clean and count as they do |

use crate::{ese_files, guest, iscsi_fio, step};
use anyhow::{Context, Result, bail, ensure};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Fixed, so that a verdict does not change with the day.
const DISSECT: &str = "dissect.esedb==3.18";

/// Fixed, for the same reason.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Drives Debian's Chromium; fixed, too.
const PLAYWRIGHT: &str = "playwright==1.65.2";
const AXE: &str = "axe-core@4.14.1";

/// A part of qemu-img that is not a program.
const QEMU_ISCSI: &str = "qemu-block-extra";

/// Judges on this machine, after installation.
pub(crate) struct Judges {
    /// A Python that can import `dissect.esedb`.
    pub dissect_python: Option<PathBuf>,
    /// The program of schemathesis.
    pub schemathesis: Option<PathBuf>,
    /// A Python that can import `playwright`.
    pub playwright_python: Option<PathBuf>,
    /// The script of axe-core.
    pub axe: Option<PathBuf>,
    /// A fio with an engine for iSCSI.
    pub iscsi_fio: Option<PathBuf>,
    /// A folder of real databases.
    pub ese_files: Option<PathBuf>,
    /// The folder of a guest with Linux's initiator.
    pub guest: Option<PathBuf>,
    missing: Vec<Missing>,
}

/// A judge that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Package { program: &'static str, package: &'static str },
    Dissect,
    Schemathesis,
    Playwright,
    Axe,
    EseFiles,
    IscsiFio,
    Guest,
}

impl Judges {
    /// True if every judge is there that comes as a package.
    pub fn complete(&self) -> bool {
        self.missing_package().is_none()
    }

    /// Not what comes from sources: where packages come from, there may be none.
    fn missing_package(&self) -> Option<&Missing> {
        let is_package = |missing: &&Missing| {
            !matches!(missing, Missing::IscsiFio | Missing::EseFiles | Missing::Guest | Missing::Axe)
        };
        self.missing.iter().find(is_package)
    }
}

/// Looks for the judges, installs those missing if `install`, names in a line each those that stay missing. Some judge only
/// `full` runs.
pub fn prepare(install: bool, full: bool) -> Result<Judges> {
    let folder = step::target_directory()?.join("judges");
    let mut judges = look(&folder, full);
    if install && !judges.missing.is_empty() {
        install_missing(&judges.missing, &folder)?;
        judges = look(&folder, full);
        if let Some(missing) = judges.missing_package() {
            bail!("{} is missing after it was installed", missing.name());
        }
    }
    for missing in &judges.missing {
        println!("{} is missing; its tests are skipped. Install it: {}", missing.name(), missing.remedy());
    }
    Ok(judges)
}

/// The version of fio, which is installed if it is missing and `install`; otherwise it is an error that says how.
pub fn fio(install: bool) -> Result<String> {
    let version = || step::output(Command::new("fio").arg("--version"));
    if version().is_err() && install {
        step::run("apt-get update", apt_get()?.arg("update"))?;
        let mut command = apt_get()?;
        command.args(["install", "--yes", "--no-install-recommends", "fio"]);
        step::run("apt-get install fio", &mut command)?;
    }
    let version = version().context("fio is missing. Install it: apt-get install fio, or --install")?;
    Ok(version.trim().to_owned())
}

/// Installs btrfs-progs, which the bench of the array compares with.
pub fn btrfs_progs() -> Result<()> {
    packages(&["btrfs-progs"])
}

/// Installs packages that a bench compares with.
pub fn packages(names: &[&str]) -> Result<()> {
    step::run("apt-get update", apt_get()?.arg("update"))?;
    let mut command = apt_get()?;
    command.args(["install", "--yes", "--no-install-recommends"]).args(names);
    step::run(&format!("apt-get install {}", names.join(" ")), &mut command).map(drop)
}

fn look(folder: &Path, full: bool) -> Judges {
    let python = folder.join("venv").join("bin").join("python");
    let has_dissect = step::succeeds(Command::new(&python).args(["-c", "import dissect.esedb"]));
    let programs = [
        ("fio", "--version", "fio"),
        ("esedbinfo", "-V", "libesedb-utils"),
        ("esedbexport", "-V", "libesedb-utils"),
        ("curl", "--version", "curl"),
        ("nbdinfo", "--version", "libnbd-bin"),
        ("qemu-img", "--version", "qemu-utils"),
        ("qemu-system-x86_64", "--version", "qemu-system-x86"),
        ("iscsi-test-cu", "--version", "libiscsi-bin"),
        ("tgtadm", "--version", "tgt"),
        ("ddrescuelog", "--version", "gddrescue"),
        ("promtool", "--version", "prometheus"),
        ("upsc", "-V", "nut-client"),
        ("upsd", "-V", "nut-server"),
        ("etcd", "--version", "etcd-server"),
        ("etcdctl", "version", "etcd-client"),
        ("restic", "version", "restic"),
    ];
    let of_ceph = [
        ("ceph-mon", "--version", "ceph-mon"),
        ("ceph-mgr", "--version", "ceph-mgr"),
        ("ceph-osd", "--version", "ceph-osd"),
        ("rbd", "--version", "ceph-common"),
    ];
    let of_full = of_ceph.into_iter().chain([("chromium", "--version", "chromium")]).filter(|_| full);
    let mut missing: Vec<Missing> = Vec::new();
    for (program, version, package) in programs.into_iter().chain(of_full) {
        if !step::succeeds(Command::new(program).arg(version)) {
            missing.push(Missing::Package { program, package });
        }
    }
    if !step::succeeds(Command::new("dpkg").args(["-s", QEMU_ISCSI])) {
        missing.push(Missing::Package { program: "iscsi:// of qemu-img", package: QEMU_ISCSI });
    }
    if !has_dissect {
        missing.push(Missing::Dissect);
    }
    let schemathesis = folder.join("schemathesis").join("bin").join("schemathesis");
    let has_schemathesis = full && step::succeeds(Command::new(&schemathesis).arg("--version"));
    if full && !has_schemathesis {
        missing.push(Missing::Schemathesis);
    }
    let playwright = folder.join("playwright").join("bin").join("python");
    let has_playwright = full && step::succeeds(Command::new(&playwright).args(["-c", "import playwright"]));
    if full && !has_playwright {
        missing.push(Missing::Playwright);
    }
    let axe = folder.join("axe").join("node_modules").join("axe-core").join("axe.min.js");
    let axe = Some(axe).filter(|axe| full && axe.is_file());
    if full && axe.is_none() {
        missing.push(Missing::Axe);
    }
    let iscsi_fio = iscsi_fio::find(folder);
    if iscsi_fio.is_none() {
        missing.push(Missing::IscsiFio);
    }
    let ese_files = ese_files::find(folder);
    if ese_files.is_none() {
        missing.push(Missing::EseFiles);
    }
    let guest = guest::find(folder).filter(|_| full);
    if full && guest.is_none() {
        missing.push(Missing::Guest);
    }
    Judges {
        dissect_python: has_dissect.then_some(python),
        schemathesis: has_schemathesis.then_some(schemathesis),
        playwright_python: has_playwright.then_some(playwright),
        axe,
        iscsi_fio,
        ese_files,
        guest,
        missing,
    }
}

impl Missing {
    fn name(self) -> &'static str {
        match self {
            Self::Package { program, .. } => program,
            Self::Dissect => "dissect.esedb",
            Self::Schemathesis => "schemathesis",
            Self::Playwright => "playwright",
            Self::Axe => "axe-core",
            Self::EseFiles => "a set of real databases",
            Self::IscsiFio => "fio with libiscsi",
            Self::Guest => "a guest with Linux's initiator",
        }
    }

    fn remedy(self) -> String {
        match self {
            Self::Package { package, .. } => {
                format!("apt-get install {package}, or cargo xtask test --install")
            }
            Self::Dissect | Self::EseFiles | Self::IscsiFio => "cargo xtask test --install".to_owned(),
            Self::Guest | Self::Schemathesis | Self::Playwright => {
                "cargo xtask test --full --install".to_owned()
            }
            Self::Axe => "npm, and cargo xtask test --full --install".to_owned(),
        }
    }
}

fn install_missing(missing: &[Missing], folder: &Path) -> Result<()> {
    let mut packages: Vec<&str> = missing
        .iter()
        .filter_map(|missing| match missing {
            Missing::Package { package, .. } => Some(*package),
            Missing::Dissect
            | Missing::Schemathesis
            | Missing::Playwright
            | Missing::Axe
            | Missing::EseFiles
            | Missing::IscsiFio
            | Missing::Guest => None,
        })
        .collect();
    packages.dedup();
    let wants_dissect = missing.contains(&Missing::Dissect);
    let wants_python =
        wants_dissect || [Missing::Schemathesis, Missing::Playwright].iter().any(|one| missing.contains(one));
    if wants_python && python_with_venv().is_none() {
        packages.push("python3-venv");
    }
    let wants_fio = missing.contains(&Missing::IscsiFio);
    if wants_fio {
        packages.extend(iscsi_fio::PACKAGES);
    }
    if !packages.is_empty() {
        step::run("apt-get update", apt_get()?.arg("update"))?;
        let mut install = apt_get()?;
        install.args(["install", "--yes", "--no-install-recommends"]).args(&packages);
        step::run(&format!("apt-get install {}", packages.join(" ")), &mut install)?;
    }
    if wants_fio && let Err(error) = iscsi_fio::build(folder) {
        println!("fio with libiscsi cannot be built here: {error:#}");
    }
    if wants_dissect {
        python_environment(&folder.join("venv"), DISSECT)?;
    }
    if missing.contains(&Missing::Schemathesis) {
        python_environment(&folder.join("schemathesis"), SCHEMATHESIS)?;
    }
    if missing.contains(&Missing::Playwright) {
        python_environment(&folder.join("playwright"), PLAYWRIGHT)?;
    }
    if missing.contains(&Missing::Axe) && step::succeeds(Command::new("npm").arg("--version")) {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", AXE]);
        step::run(&format!("npm install {AXE}"), npm.arg("--prefix").arg(folder.join("axe")))?;
    }
    if missing.contains(&Missing::Guest)
        && let Err(error) = guest::build(folder)
    {
        println!("a guest with Linux's initiator cannot be made here: {error:#}");
    }
    if missing.contains(&Missing::EseFiles)
        && let Err(error) = ese_files::fetch(folder, DISSECT)
    {
        println!("real databases cannot be had here: {error:#}");
    }
    Ok(())
}

/// A Python that can import `playwright`, which Debian's chromium is driven by.
pub fn playwright(install: bool) -> Result<PathBuf> {
    let environment = step::target_directory()?.join("judges").join("playwright");
    let python = environment.join("bin").join("python");
    let is_there = || {
        step::succeeds(Command::new(&python).args(["-c", "import playwright"]))
            && step::succeeds(Command::new("chromium").arg("--version"))
    };
    if !is_there() && install {
        packages(&["chromium"])?;
        python_environment(&environment, PLAYWRIGHT)?;
    }
    ensure!(is_there(), "playwright or chromium is missing: --install installs them");
    Ok(python)
}

/// Makes a virtual environment with a package.
fn python_environment(environment: &Path, package: &str) -> Result<()> {
    let python = python_with_venv().context("no python3 can make a virtual environment")?;
    step::run("python3 -m venv", Command::new(python).args(["-m", "venv", "--clear"]).arg(environment))?;
    let mut pip = Command::new(environment.join("bin").join("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]);
    step::run(&format!("pip install {package}"), &mut pip).map(drop)
}

/// The first Python that brings what a virtual environment needs (Debian ships that part apart).
fn python_with_venv() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"]
        .into_iter()
        .find(|python| step::succeeds(Command::new(python).args(["-c", "import venv, ensurepip"])))
}

/// apt-get with the right to install: as it is for root, otherwise through sudo that asks nothing.
fn apt_get() -> Result<Command> {
    let mut user = Command::new("id");
    let is_root = step::output(user.arg("-u"))?.trim() == "0";
    let mut command = if is_root {
        Command::new("apt-get")
    } else {
        let mut command = Command::new("sudo");
        command.args(["--non-interactive", "--preserve-env=DEBIAN_FRONTEND", "apt-get"]);
        command
    };
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet");
    Ok(command)
}
