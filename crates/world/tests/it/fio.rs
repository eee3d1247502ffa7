//! fio as independent judge: we read its pattern, and it verifies ours.

use crate::in_each_engine;
use std::{path::Path, process::Command, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Stability,
    real::{AccessMode, FileDevice},
};

const FILE_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: usize = 32 << 10;
/// The byte pattern both sides write.
const PATTERN: [u8; 4] = [0xC0, 0xFF, 0xEE, 0x17];

fn fio_is_here() -> bool {
    let here = Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success());
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "fio is required: apt-get install fio");
    if !here {
        println!("skipped: fio is not installed (apt-get install fio)");
    }
    here
}

/// Runs fio's own write or check of the pattern over the file.
fn fio(path: &Path, arguments: &[&str]) {
    let output = Command::new("fio")
        .args([
            "--name=judge",
            "--verify_state_save=0",
            "--rw=write",
            "--bs=32k",
            "--direct=1",
            "--ioengine=psync",
            "--size=4m",
        ])
        .args([
            "--verify=pattern",
            "--verify_pattern=0xC0FFEE17",
            "--verify_fatal=1",
            "--output-format=terse",
        ])
        .arg(format!("--filename={}", path.display()))
        .arg("--output-format=terse")
        .args(arguments)
        .output()
        .expect("fio starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn block() -> Buffer {
    let mut block = Buffer::zeroed(BLOCK_BYTES);
    for bytes in block.chunks_exact_mut(PATTERN.len()) {
        bytes.copy_from_slice(&PATTERN);
    }
    block
}

#[test]
fn we_read_what_fio_wrote_and_fio_verifies_what_we_wrote() {
    if !fio_is_here() {
        return;
    }
    in_each_engine(async |_, folder| {
        let theirs = folder.join("theirs");
        fio(&theirs, &["--do_verify=0"]);
        let device = FileDevice::open(&theirs, AccessMode::Read).expect("opens");
        assert_eq!(device.geometry().size, ByteCount(FILE_BYTES));
        for at in (0..FILE_BYTES).step_by(BLOCK_BYTES) {
            let read = device.read(ByteOffset(at), vec![Buffer::zeroed(BLOCK_BYTES)]).await.expect("reads");
            assert!(read[0][..] == block()[..], "block at {at}");
        }

        let ours = folder.join("ours");
        let device = FileDevice::create(&ours, ByteCount(FILE_BYTES)).await.expect("made");
        let block = Arc::new(block());
        for at in (0..FILE_BYTES).step_by(BLOCK_BYTES) {
            let write = device.write(ByteOffset(at), vec![Arc::clone(&block)], Stability::Volatile);
            write.await.expect("writes");
        }
        device.flush().await.expect("flushes");
        fio(&ours, &["--verify_only=1"]);

        // The check can fail: fio must detect one changed byte.
        let mut wrong = Buffer::clone(&block);
        wrong[777] ^= 1;
        let write = device.write(ByteOffset(1 << 20), vec![Arc::new(wrong)], Stability::Stable);
        write.await.expect("writes");
        let noticed = std::panic::catch_unwind(|| fio(&ours, &["--verify_only=1"]));
        assert!(noticed.is_err(), "fio detects a changed byte");
    });
}
