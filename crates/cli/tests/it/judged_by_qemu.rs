//! QEMU's tools on what is exported, over both protocols.

use crate::{
    exported::{Exported, is_here, judge, noise, text},
    spindle::Bench,
};
use std::{fs, process::Command};

const MIB: usize = 1 << 20;

/// True if QEMU's tools are installed, with their part for iSCSI.
fn qemu_is_here() -> bool {
    if !is_here("qemu-img", "qemu-utils") || !is_here("qemu-io", "qemu-utils") {
        return false;
    }
    let package = Command::new("dpkg").args(["-s", "qemu-block-extra"]).output();
    let here = package.is_ok_and(|output| output.status.success());
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "QEMU's iSCSI is required: apt-get install qemu-block-extra");
    if !here {
        println!("skipped: qemu-img knows no iscsi:// (apt-get install qemu-block-extra)");
    }
    here
}

fn qemu_io(format: &str, commands: &[&str], uri: &str) {
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let arguments: Vec<&str> = ["-f", format].into_iter().chain(commands).chain([uri]).collect();
    let said = judge("qemu-io", &arguments);
    assert!(!said.contains("verification failed"), "{said}");
}

/// `qemu-img create`, `convert`, `compare` and `check`, and `qemu-io`, on the export at `uri`, which lies in `disk.img`.
fn judge_all(bench: &Bench, uri: &str) {
    // An image with a format of its own on the export, made there.
    let image = text(&bench.make_file("image", &noise(6 * MIB, 2)));
    judge("qemu-img", &["create", "-q", "-f", "qcow2", uri, "6M"]);
    judge("qemu-img", &["convert", "-n", "-f", "raw", "-O", "qcow2", &image, uri]);
    judge("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &image, uri]);
    qemu_io(
        "qcow2",
        &["write -P 7 1M 1M", "discard 2M 1M", "flush", "read -P 7 1M 1M", "read -P 0 2M 1M"],
        uri,
    );
    judge("qemu-img", &["check", "-f", "qcow2", uri]);
    // The export itself.
    let image = noise(8 * MIB, 3);
    let path = text(&bench.make_file("image", &image));
    judge("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &path, uri]);
    judge("qemu-img", &["compare", "-f", "raw", "-F", "raw", &path, uri]);
    assert!(fs::read(bench.path("disk.img")).unwrap() == image, "it lies in the file");
    let commands = [
        "write -P 7 0 1M",
        "write -f -P 9 64k 64k",
        "write -z 128k 64k",
        "write -z -u 256k 64k",
        "discard 1M 1M",
        "flush",
        "read -P 7 0 64k",
        "read -P 9 64k 64k",
        "read -P 0 128k 64k",
        "read -P 7 192k 64k",
        "read -P 0 256k 64k",
    ];
    qemu_io("raw", &commands, uri);
}

#[test]
fn qemu_makes_converts_compares_and_uses_images_over_nbd() {
    if !qemu_is_here() {
        return;
    }
    let bench = Bench::new();
    let arguments = ["disk.img", "--create", "8MiB", "--nbd", "127.0.0.1:0"];
    let exported = Exported::begin(&bench, &arguments);
    judge_all(&bench, &exported.uris[0]);
}

#[test]
fn qemu_makes_converts_compares_and_uses_images_over_iscsi() {
    if !qemu_is_here() {
        return;
    }
    let bench = Bench::new();
    let arguments = ["disk.img", "--create", "8MiB", "--iscsi", "127.0.0.1:0"];
    let exported = Exported::begin(&bench, &arguments);
    judge_all(&bench, &exported.uris[0]);
}
