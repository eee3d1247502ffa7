//! A guest with Linux's own initiator: Debian's kernel, open-iscsi, multipath-tools, xfsprogs and fio, under QEMU's emulation.
//!
//! No image is kept anywhere: packages by name, from where this machine has its own, are unpacked under the target folder,
//! and nothing is installed. The guest's file system is made of them in memory.

use crate::step;
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Debian packages; what they depend on comes with them.
const PACKAGES: [&str; 15] = [
    "busybox-static",
    "cpio",
    "e2fsprogs",
    "fio",
    "iproute2",
    "kmod",
    "kpartx",
    "libgcc-s1",
    "linux-image-amd64",
    "multipath-tools",
    "open-iscsi",
    "qemu-system-x86",
    "sg3-utils",
    "udev",
    "xfsprogs",
];

/// The folder of the guest among the judges, if it was made: `vmlinuz`, `initrd.img`, and `rootfs` with QEMU.
pub fn find(judges: &Path) -> Option<PathBuf> {
    let folder = judges.join("guest");
    let is_whole = fs::read_to_string(folder.join("made")).ok()? == recipe();
    is_whole.then_some(folder)
}

/// The recipe of a guest; a changed recipe makes a new guest.
fn recipe() -> String {
    [&PACKAGES.join(" "), include_str!("../guest/init"), include_str!("../guest/make-initrd.sh")].join("\n")
}

/// Makes it: some 180 MB are downloaded, and 900 MB unpacked.
pub fn build(judges: &Path) -> Result<()> {
    let folder = judges.join("guest");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    for name in ["apt/state/lists/partial", "apt/cache/archives/partial", "rootfs"] {
        fs::create_dir_all(folder.join(name))?;
    }
    // To this apt nothing is installed: it brings all that a package needs.
    fs::write(folder.join("apt/status"), "")?;
    step::run("apt-get update (guest)", apt_get(&folder).arg("update"))?;
    let mut download = apt_get(&folder);
    download.args(["install", "--yes", "--no-install-recommends", "--download-only"]).args(PACKAGES);
    step::run("apt-get install --download-only (guest)", &mut download)?;
    for entry in fs::read_dir(folder.join("apt/cache/archives"))? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(&package).arg(folder.join("rootfs"));
            step::output(&mut unpack)?;
        }
    }
    fs::remove_dir_all(folder.join("apt"))?;
    let kernel = fs::read_dir(folder.join("rootfs/boot"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")))
        .context("linux-image-amd64 brought no kernel")?;
    fs::copy(kernel, folder.join("vmlinuz"))?;
    fs::write(folder.join("init"), include_str!("../guest/init"))?;
    let mut make = Command::new("bash");
    make.arg("-c").arg(include_str!("../guest/make-initrd.sh")).current_dir(&folder);
    step::run("make the guest's initrd", &mut make)?;
    Ok(fs::write(folder.join("made"), recipe())?)
}

/// apt-get with a state of its own below `folder`.
fn apt_get(folder: &Path) -> Command {
    let mut command = Command::new("apt-get");
    let apt = folder.join("apt");
    for (option, path) in [("Dir::State::status", "status"), ("Dir::State", "state"), ("Dir::Cache", "cache")]
    {
        command.arg("-o").arg(format!("{option}={}", apt.join(path).display()));
    }
    // Else apt becomes a user who may not write here.
    command.args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root", "--quiet"]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
