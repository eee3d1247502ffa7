//! Phrases of kernel messages that report failed I/O or a failing device.
//!
//! A phrase is a list of parts that must all occur in the message, in any order. The texts come from the
//! kernel's sources, which change them now and then; the parts chosen have been stable for years. Phrases are
//! tried in order, and the first match names the error.

/// A kind of error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// All of these occur in the message.
    parts: &'static [&'static str],
    /// The kind of error.
    pub what: &'static str,
    /// The kernel source file that prints it.
    pub source: &'static str,
}

const fn phrase(parts: &'static [&'static str], what: &'static str, source: &'static str) -> Phrase {
    Phrase { parts, what, source }
}

/// Parts of messages that match a phrase below but report no error.
const HARMLESS: [&str; 4] = [
    // A device that cannot discard or write zeroes reports that once (block/blk-mq.c).
    "operation not supported error, dev ",
    // The block layer retries it (block/blk-core.c, blk_errors).
    "nonblocking retry error, dev ",
    "dm internal retry error, dev ",
    // A request the drive does not support (drivers/scsi/constants.c).
    "Sense Key : Illegal Request",
];

/// Tried in this order.
const PHRASES: [Phrase; 35] = [
    phrase(&["critical medium error, dev "], "medium error", "block/blk-mq.c"),
    phrase(&["critical target error, dev "], "target error", "block/blk-mq.c"),
    phrase(&["timeout error, dev "], "timeout", "block/blk-mq.c"),
    phrase(&["device offline error, dev "], "device offline", "block/blk-mq.c"),
    // blk_update_request, print_req_error and end_request before it: "I/O error, dev sda, sector 8".
    phrase(&[" error, dev ", ", sector "], "I/O error", "block/blk-mq.c"),
    phrase(&["I/O error, dev "], "I/O error", "block/blk-mq.c"),
    phrase(&["Buffer I/O error on dev"], "I/O error", "fs/buffer.c"),
    phrase(&["due to I/O error on"], "I/O error", "fs/buffer.c"),
    phrase(&["attempt to access beyond end of device"], "access beyond the end", "block/blk-core.c"),
    phrase(&["Sense Key : Medium Error"], "medium error", "drivers/scsi/scsi_logging.c"),
    phrase(&["Sense Key : Hardware Error"], "hardware error", "drivers/scsi/scsi_logging.c"),
    phrase(&["Sense Key : Aborted Command"], "command aborted", "drivers/scsi/scsi_logging.c"),
    phrase(&["rejecting I/O to"], "device offline", "drivers/scsi/scsi_lib.c"),
    phrase(&["Device offlined"], "device offline", "drivers/scsi/scsi_error.c"),
    phrase(&["timing out command"], "timeout", "drivers/scsi/scsi_error.c"),
    phrase(&["task abort"], "command aborted", "drivers/message/fusion, drivers/scsi/mpt3sas"),
    phrase(&["Power-on or device reset occurred"], "device reset", "drivers/scsi/scsi_error.c"),
    phrase(&["detected conn error"], "connection lost", "drivers/scsi/scsi_transport_iscsi.c"),
    phrase(&["session recovery timed out"], "connection lost", "drivers/scsi/scsi_transport_iscsi.c"),
    phrase(&["ata", "exception Emask"], "ATA exception", "drivers/ata/libata-eh.c"),
    phrase(&["ata", "failed command: "], "ATA command failed", "drivers/ata/libata-eh.c"),
    phrase(&["ata", "hard resetting link"], "link reset", "drivers/ata/libata-eh.c"),
    phrase(&["nvme", "QID", "timeout"], "timeout", "drivers/nvme/host/pci.c"),
    phrase(&["nvme", "controller is down"], "controller down", "drivers/nvme/host/pci.c"),
    phrase(&["nvme", "Device not ready"], "controller down", "drivers/nvme/host/core.c"),
    phrase(&["nvme", "resetting controller"], "controller reset", "drivers/nvme/host/core.c"),
    phrase(&["nvme", "(sct 0x"], "I/O error", "drivers/nvme/host/core.c"),
    phrase(&["multipath", "Failing path"], "path lost", "drivers/md/dm-mpath.c"),
    phrase(&["Disk failure on"], "disk failed", "drivers/md/raid1.c, raid5.c, raid10.c"),
    phrase(&["EXT4-fs error"], "filesystem error", "fs/ext4/super.c"),
    phrase(&["EXT4-fs", "I/O error"], "I/O error", "fs/ext4/page-io.c"),
    phrase(&["JBD2:", "error"], "journal error", "fs/jbd2/journal.c"),
    phrase(&["XFS (", "I/O error"], "I/O error", "fs/xfs/xfs_buf.c, xfs_log.c"),
    phrase(&["BTRFS", "error (device "], "filesystem error", "fs/btrfs/messages.c, volumes.c"),
    phrase(&["nfs: server", "not responding"], "server does not answer", "net/sunrpc/clnt.c"),
];

/// The phrase a message matches; `None` if it reports no error.
pub fn error_in(text: &str) -> Option<Phrase> {
    if HARMLESS.iter().any(|harmless| text.contains(harmless)) {
        return None;
    }
    PHRASES.into_iter().find(|phrase| phrase.parts.iter().all(|part| text.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, what: Option<&str>) {
        assert_eq!(error_in(text).map(|phrase| phrase.what), what, "{text}");
    }

    #[test]
    fn block_layer_messages_of_all_kernels_match() {
        for text in [
            "end_request: I/O error, dev sda, sector 326677146",
            "blk_update_request: I/O error, dev sdb, sector 1953120 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
            "print_req_error: I/O error, dev nvme0n1, sector 0 flags 0",
            "I/O error, dev loop0, sector 524288 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2",
            "Buffer I/O error on dev sdb1, logical block 244139, async page read",
            "Buffer I/O error on device sr0, logical block 508965",
            "recoverable transport error, dev sdc, sector 2048 op 0x0:(READ) flags 0x4000 phys_seg 4 prio class 2",
        ] {
            check(text, Some("I/O error"));
        }
        check(
            "critical medium error, dev sda, sector 66 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
            Some("medium error"),
        );
        check(
            "dd: attempt to access beyond end of device loop0: rw=1, sector=8, nr_sectors = 8 limit=8",
            Some("access beyond the end"),
        );
    }

    #[test]
    fn driver_and_transport_messages_match() {
        check("sd 0:0:1:0: [sdb] tag#12 Sense Key : Medium Error [current]", Some("medium error"));
        check("sd 2:0:0:0: [sda] Sense Key : Medium Error [current] [descriptor]", Some("medium error"));
        check("sd 3:0:0:1: rejecting I/O to offline device", Some("device offline"));
        check("sd 3:0:0:1: Power-on or device reset occurred", Some("device reset"));
        check("ata3.00: exception Emask 0x0 SAct 0x1 SErr 0x0 action 0x0", Some("ATA exception"));
        check("ata3.00: failed command: READ FPDMA QUEUED", Some("ATA command failed"));
        check("ata4: hard resetting link", Some("link reset"));
        check("nvme nvme2: I/O 0 QID 0 timeout, reset controller", Some("timeout"));
        check(
            "nvme nvme0: I/O tag 128 (a080) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0) size:4096",
            Some("timeout"),
        );
        check(
            "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
            Some("controller down"),
        );
        check("nvme nvme2: Device not ready; aborting reset, CSTS=0x1", Some("controller down"));
        check(
            "nvme0n1: Read(0x2) @ LBA 2048, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR",
            Some("I/O error"),
        );
        check("device-mapper: multipath: 253:3: Failing path 8:16.", Some("path lost"));
        check("connection1:0: detected conn error (1022)", Some("connection lost"));
        check("md/raid1:md0: Disk failure on sdb1, disabling device.", Some("disk failed"));
    }

    #[test]
    fn filesystem_messages_match() {
        check(
            "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
            Some("filesystem error"),
        );
        check(
            "EXT4-fs warning (device loop0): ext4_end_bio:343: I/O error 10 writing to inode 12 starting block 33280)",
            Some("I/O error"),
        );
        check("JBD2: Detected IO errors -5 while flushing file data on loop0-8", Some("journal error"));
        check(
            "XFS (dm-7): metadata I/O error: block 0x280000010 (\"xlog_bread_noalign\") error 5 numblks 8",
            Some("I/O error"),
        );
        check(
            "XFS (vda4): metadata I/O error in \"xfs_dquot_disk_read+0x14a/0x220 [xfs]\" at daddr 0x1478 len 8 error 74",
            Some("I/O error"),
        );
        check(
            "BTRFS error (device dm-0): bdev /dev/mapper/root_1 errs: wr 0, rd 3535, flush 0, corrupt 0, gen 0",
            Some("filesystem error"),
        );
        check(
            "BTRFS: error (device nvme0n1p2: state A) in __btrfs_free_extent:3070: errno=-5 IO failure",
            Some("filesystem error"),
        );
        check("nfs: server filer1 not responding, still trying", Some("server does not answer"));
    }

    #[test]
    fn harmless_messages_do_not_match() {
        for text in [
            "operation not supported error, dev loop0, sector 0 op 0x9:(WRITE_ZEROES) flags 0x8000800 phys_seg 0 prio class 0",
            "sd 0:0:0:0: [sda] tag#4 Sense Key : Illegal Request [current]",
            "sda: sda1 sda2",
            "EXT4-fs (sda1): mounted filesystem with ordered data mode",
            "XFS (dm-1): Ending clean mount",
            "BTRFS info (device dm-1): bdev /dev/mapper/x errs: wr 0, rd 0, flush 0, corrupt 134, gen 0",
            "usb 1-1: new high-speed USB device",
            "data: exception",
        ] {
            check(text, None);
        }
    }
}
