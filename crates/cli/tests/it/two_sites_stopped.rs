//! Two servers and a witness: the drives of the primary refuse all writes, while its server, its line and its reads are
//! well.

use crate::{
    judged_exports::{BLOCK, Endpoint, JOBS, PART, answered_lengths, fio, until},
    storage::{LoopDevice, may_mount},
    two_sites::{Site, has_clients, paired_with_both},
    two_sites_auto::{Witness, is_protected},
};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

const SERVED: &str =
    "[[volume]]\nname = 'disk'\ngroup = 'shelf'\ngb = 0.125\n[[nbd]]\nname = 'disk'\nvolume = 'shelf/disk'\n";
const FILES: &str = "[[group]]\nname = 'shelf'\ndrives = 2\ndrive_gb = 0.4\n";

#[test]
fn a_primary_whose_drives_refuse_all_writes_is_taken_over_without_a_person() {
    if !has_clients() || !may_mount() {
        return;
    }
    let drives: Option<Vec<LoopDevice>> = (0..2).map(|_| LoopDevice::new(512 << 20)).collect();
    let Some(drives) = drives else { return };
    let paths: Vec<String> = drives.iter().map(|drive| format!("'{}'", drive.path().display())).collect();
    let devices = format!("[[group]]\nname = 'shelf'\ndevices = [{}]\n", paths.join(", "));
    let witness = Witness::begin();
    let (mut boston, denver) = paired_with_both((&format!("{devices}{SERVED}"), FILES));
    boston.verb(&format!("dr create sg1 shelf/disk --to denver --mode {}", witness.mode("2s")));
    until("the first copy is complete", || boston.is("primary", "streaming"));
    denver.write("denver", &format!("{FILES}{SERVED}"));
    denver.verb("apply site.toml");
    boston.io(&["write -P 17 0 1M"]);
    until("it is in sync", || boston.row()["is_alone"] == false);
    until("the witness knows it", || is_protected(&boston));

    let by = |site: &Site, options: &str, lengths| {
        fio((&site.bench, Path::new("fio")), &Endpoint::Socket(site.bench.path("socket")), options, lengths)
    };
    let mut writing = by(&boston, "do_verify=0", [PART; JOBS as usize]).spawn().unwrap();
    thread::sleep(Duration::from_millis(1500));
    drives.iter().for_each(|drive| drive.refuse_writes(true));
    let refused = Instant::now();
    until("fio hears of it", || writing.try_wait().unwrap().is_some());
    let lengths = answered_lengths(&boston.bench);
    assert!(lengths.iter().sum::<u64>() > 50 * BLOCK, "{lengths:?}");
    until("denver serves", || denver.answers("read 0 4k"));
    println!("note: served again {:?} after the drives refused", refused.elapsed());
    let verified = by(&denver, "verify_only=1", lengths).status().unwrap();
    assert!(verified.success(), "{}\n{}", denver.fio_output(), denver.log());
    until("the log says so", || denver.log().contains("this site took over"));
    boston.is_closed();
    let said = boston.bench.run(&["dr", "status", "--state", "state"]).stdout;
    assert!(said.contains("the pool here takes no writes"), "{said}\n{}", boston.log());
    boston.refused("failover sg1", "takes no writes");

    // Its drives are well again: once its pool is open it follows.
    drives.iter().for_each(|drive| drive.refuse_writes(false));
    boston.kill();
    boston.start();
    until("boston follows", || boston.is("secondary", "following") && denver.is("primary", "streaming"));
    boston.is_closed();
}
