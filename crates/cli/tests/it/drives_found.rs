//! Drives are found by their superblocks, whatever they are called since the last start; a drive whose opening fails is
//! a drive that is not there.

use crate::{
    spindle::{Bench, ProgramOutput, json_of},
    storage::{LoopDevice, Mount, may_mount},
};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

#[track_caller]
fn done(said: &ProgramOutput) -> String {
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    said.stdout.clone()
}

#[track_caller]
fn show(bench: &Bench, pool: &str) -> serde_json::Value {
    json_of(&done(&bench.run(&["pool", "show", pool, "--json"])))
}

/// Devices of a machine, with names that lead to them for now: `DIR/sda`, `DIR/sdb`, ...
struct Machine {
    bench: Bench,
    disks: Vec<LoopDevice>,
}

impl Machine {
    /// None (and a line) where devices cannot be made.
    fn with(disk_count: usize) -> Option<Self> {
        if !may_mount() {
            return None;
        }
        let disks: Vec<_> = (0..disk_count).map_while(|_| LoopDevice::new(96 << 20)).collect();
        let machine = Self { bench: Bench::new(), disks };
        (machine.disks.len() == disk_count).then(|| machine.named(&(0..disk_count).collect::<Vec<_>>()))
    }

    /// The machine starts again: the first name leads to the disk of the first index, and so on.
    fn named(self, order: &[usize]) -> Self {
        for (name, &disk) in (b'a'..).zip(order) {
            self.disks[disk].make_node(&self.bench.path(&format!("sd{}", char::from(name))));
        }
        self
    }

    fn create(&self, pool: &str, names: &[&str]) {
        let paths: Vec<String> =
            names.iter().map(|name| self.bench.path(name).display().to_string()).collect();
        let devices = paths.iter().flat_map(|path| ["--device", path]);
        done(&self.bench.run(&["pool", "create", pool].into_iter().chain(devices).collect::<Vec<_>>()));
        done(&self.bench.run(&["volume", "create", &format!("{pool}/store-of-{pool}"), "16MiB"]));
    }

    /// The pool is whole: all its drives take part, and it is the one that was asked for.
    #[track_caller]
    fn is_whole(&self, pool: &str, drive_count: usize) {
        let shown = show(&self.bench, pool);
        assert_eq!(shown["drives_in_use"], drive_count, "{shown}");
        assert_eq!(shown["drives"].as_array().unwrap().len(), drive_count, "{shown}");
        assert_eq!(shown["volumes"][0]["name"], format!("store-of-{pool}"), "{shown}");
    }
}

#[test]
fn drives_whose_names_were_permuted_are_the_same_drives() {
    let Some(machine) = Machine::with(4) else { return };
    machine.create("mail", &["sda", "sdb", "sdc"]);
    let machine = machine.named(&[3, 0, 1, 2]);
    let said = machine.bench.run(&["pool", "show", "mail"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    // The first name leads to a disk that was not there before; the two others were told apart by their superblocks.
    let third = machine.disks[2].path().display().to_string();
    assert!(said.stderr.contains(&format!("{third}, was DIR/sdc")), "{}", said.stderr);
    machine.is_whole("mail", 3);
    let again = machine.bench.run(&["pool", "show", "mail"]);
    assert_eq!(again.stderr, "", "where they are now is in the record");
    assert_eq!(machine.disks[3].ends(), (vec![0; 1 << 20], vec![0; 1 << 20]), "the new disk was not written");
}

#[test]
fn a_name_that_leads_to_a_mounted_disk_now_costs_no_drive() {
    let Some(machine) = Machine::with(4) else { return };
    machine.create("mail", &["sda", "sdb", "sdc"]);
    machine.disks[3].make_ext4();
    let mounted = machine.disks[3].mount(&machine.bench, "system");
    let machine = machine.named(&[0, 3, 2, 1]);
    let before = machine.disks[3].ends();
    machine.is_whole("mail", 3);
    assert!(machine.disks[3].ends() == before, "the system's disk was not written");
    // The drive is away: the reason says what its name leads to.
    let record = fs::read_to_string(machine.bench.path("mail/spindle-pool.json")).unwrap();
    let now = machine.disks[1].path().display().to_string();
    assert!(record.contains(&now), "{record}");
    drop(mounted);
}

#[test]
fn a_missing_drive_is_named_with_the_device_its_path_leads_to() {
    let Some(machine) = Machine::with(4) else { return };
    machine.create("mail", &["sda", "sdb", "sdc"]);
    machine.disks[3].make_ext4();
    let mounted = machine.disks[3].mount(&machine.bench, "system");
    let machine = machine.named(&[0, 3, 2]);
    fs::write(machine.disks[1].path(), vec![0; 96 << 20]).unwrap();
    let shown = done(&machine.bench.run(&["pool", "show", "mail"]));
    let story = "  drive DIR/sdb: not there: DIR/sdb is mounted at DIR/system";
    assert!(shown.contains(story), "{shown}");
    let shown = show(&machine.bench, "mail");
    assert_eq!(
        (&shown["drives_in_use"], &shown["drives"][1]["is_there"]),
        (&2.into(), &false.into()),
        "{shown}"
    );
    drop(mounted);
}

#[test]
fn two_pools_whose_drives_were_crossed_get_their_own() {
    let Some(machine) = Machine::with(4) else { return };
    machine.create("mail", &["sda", "sdb"]);
    machine.create("archive", &["sdc", "sdd"]);
    let machine = machine.named(&[2, 1, 0, 3]);
    machine.is_whole("mail", 2);
    machine.is_whole("archive", 2);
    // All of them: by its paths alone each would open as the other.
    let records = ["mail", "archive"].map(|pool| machine.bench.path(&format!("{pool}/spindle-pool.json")));
    let [mut mail, mut archive] = records.each_ref().map(|path| json_of(&fs::read_to_string(path).unwrap()));
    for drive in 0..2 {
        std::mem::swap(&mut mail["drives"][drive]["path"], &mut archive["drives"][drive]["path"]);
    }
    for (path, record) in records.iter().zip([mail, archive]) {
        fs::write(path, record.to_string()).unwrap();
    }
    machine.is_whole("mail", 2);
    machine.is_whole("archive", 2);
}

#[test]
fn a_drive_that_cannot_be_read_is_a_drive_that_is_not_there() {
    let Some(machine) = Machine::with(3) else { return };
    machine.create("mail", &["sda", "sdb", "sdc"]);
    machine.disks[1].cut_off(0);
    let shown = done(&machine.bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("  drive DIR/sdb: not there: reading "), "{shown}");
    assert!(shown.contains("Input/output error"), "{shown}");
    let shown = show(&machine.bench, "mail");
    assert_eq!(
        (&shown["drives_in_use"], &shown["drives"][1]["is_there"]),
        (&2.into(), &false.into()),
        "{shown}"
    );
    // The pool decides: of two drives one is not enough, and the line says which one is not there, and why.
    machine.disks[2].cut_off(0);
    assert_eq!(machine.bench.run(&["pool", "show", "mail"]).code, Some(1), "what can be read is shown");
    let refused = machine.bench.run(&["pool", "scrub", "mail"]);
    assert_eq!(refused.code, Some(2));
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    let story = "DIR/sdc (reading 65536 bytes at offset 0 of ";
    assert!(refused.stderr.contains(story) && refused.stderr.contains("are missing"), "{}", refused.stderr);
}

#[test]
fn a_drive_that_is_write_protected_is_a_drive_that_is_not_there() {
    let Some(machine) = Machine::with(3) else { return };
    machine.create("mail", &["sda", "sdb", "sdc"]);
    let protect = |flag: &str| {
        let done = Command::new("blockdev").arg(flag).arg(machine.disks[1].path()).status().unwrap();
        assert!(done.success());
    };
    protect("--setro");
    let shown = done(&machine.bench.run(&["pool", "show", "mail"]));
    protect("--setrw");
    let node = machine.disks[1].path().display();
    assert!(shown.contains(&format!("  drive DIR/sdb: not there: {node} is read-only")), "{shown}");
    assert_eq!(show(&machine.bench, "mail")["drives_in_use"], 2, "it fell behind meanwhile");
}

#[test]
fn a_user_without_permission_is_refused_and_no_drive_counts_as_missing() {
    let Some(machine) = Machine::with(3) else { return };
    machine.create("mail", &["sda", "sdb", "sdc"]);
    let mut command = machine.bench.command(&["pool", "show", "mail"]);
    // The user nobody may enter the folder, and look at no device.
    fs::set_permissions(machine.bench.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let Ok(output) = command.uid(65534).gid(65534).output() else {
        return println!("skipped: another user cannot enter the folder here");
    };
    let said = machine.bench.said(output);
    assert_eq!(said.code, Some(2), "{}", said.stdout);
    let node = machine.disks[0].path().display();
    let story =
        format!("spindle: mail: opening {node}: Permission denied (os error 13); run it as root, or as");
    assert!(said.stderr.starts_with(&story), "{}", said.stderr);
    machine.is_whole("mail", 3);
}

#[test]
fn neither_a_drive_nor_its_copy_is_used() {
    let Some(machine) = Machine::with(3) else { return };
    machine.create("mail", &["sda", "sdb"]);
    fs::copy(machine.disks[1].image(), machine.disks[2].image()).unwrap();
    let copy = fs::read(machine.disks[1].path()).unwrap();
    fs::write(machine.disks[2].path(), copy).unwrap();
    let before = machine.disks.iter().map(LoopDevice::ends).collect::<Vec<_>>();
    let refused = machine.bench.refused(&["pool", "show", "mail"]);
    for disk in [&machine.disks[1], &machine.disks[2]] {
        assert!(refused.contains(&format!("{} (generation ", disk.path().display())), "{refused}");
    }
    assert!(refused.contains("one is a copy of the other"), "{refused}");
    assert!(machine.disks.iter().map(LoopDevice::ends).eq(before), "nothing was written");
    fs::write(machine.disks[2].path(), vec![0; 4 << 20]).unwrap();
    machine.is_whole("mail", 2);
}

#[test]
fn one_disk_by_two_names_is_refused_for_a_new_pool() {
    let Some(machine) = Machine::with(2) else { return };
    let machine = machine.named(&[0, 0]);
    let [first, second] = ["sda", "sdb"].map(|name| machine.bench.path(name).display().to_string());
    let refused = machine.bench.refused(&["pool", "create", "mail", "--device", &first, "--device", &second]);
    assert!(refused.contains("DIR/sda and DIR/sdb are the same disk"), "{refused}");
}

#[test]
fn a_record_of_the_first_format_is_read_and_brought_up_to_date() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB"]));
    let record = bench.path("mail/spindle-pool.json");
    let first =
        "{\"format\": 1, \"drives\": [\"drive-1.spindle\", \"drive-2.spindle\", \"drive-3.spindle\"]}";
    fs::write(&record, first).unwrap();
    // A drive under another name in the folder is found as well.
    fs::rename(bench.path("mail/drive-2.spindle"), bench.path("mail/renamed")).unwrap();
    let shown = show(&bench, "mail");
    assert_eq!(shown["drives_in_use"], 3, "{shown}");
    assert_eq!(shown["drives"].as_array().unwrap().len(), 3, "{shown}");
    let record = json_of(&fs::read_to_string(&record).unwrap());
    assert_eq!((&record["format"], &record["drives"][1]["path"]), (&2.into(), &"renamed".into()), "{record}");
    assert_eq!(record["drives"][1]["drive"], shown["drives"][1]["drive"]);
}

#[test]
fn a_lost_record_is_written_again_from_the_drives() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "16MiB"]));
    let before = show(&bench, "mail");
    fs::remove_file(bench.path("mail/spindle-pool.json")).unwrap();
    let refused = bench.refused(&["pool", "show", "mail"]);
    assert!(refused.contains("'spindle pool import mail' writes it again"), "{refused}");
    let listed = json_of(&done(&bench.run(&["pool", "import", "mail", "--list", "--json"])));
    assert_eq!(
        (&listed[0]["name"], &listed[0]["missing"]),
        (&"mail".into(), &serde_json::json!([])),
        "{listed}"
    );
    assert!(!bench.path("mail/spindle-pool.json").exists(), "a list writes nothing");
    let said = done(&bench.run(&["pool", "import", "mail"]));
    assert!(said.contains("3 drives found") && said.contains("open it: spindle pool show mail"), "{said}");
    let after = show(&bench, "mail");
    assert_eq!(after["volumes"], before["volumes"]);
    assert_eq!(after["drives_in_use"], 3, "{after}");
    let refused = bench.refused(&["pool", "import", "mail"]);
    assert!(refused.contains("mail has a record already"), "{refused}");
    // // A missing drive is reported; the pool opens without it.
    fs::remove_file(bench.path("mail/spindle-pool.json")).unwrap();
    fs::rename(bench.path("mail/drive-2.spindle"), bench.path("away")).unwrap();
    let said = done(&bench.run(&["pool", "import", "mail"]));
    assert!(said.contains("2 drives found") && said.contains("  not found: drive-2 ("), "{said}");
    assert_eq!(show(&bench, "mail")["drives_in_use"], 2);
}

#[test]
fn what_is_ambiguous_is_not_imported() {
    let bench = Bench::new();
    for pool in ["mail", "archive"] {
        done(&bench.run(&["pool", "create", pool, "--size", "96MiB", "--drives", "1"]));
    }
    fs::copy(bench.path("mail/drive-1.spindle"), bench.path("mail/copy")).unwrap();
    for pool in ["mail", "archive"] {
        fs::remove_file(bench.path(&format!("{pool}/spindle-pool.json"))).unwrap();
    }
    bench.make_folder("empty");
    for (arguments, story) in [
        (&["pool", "import", "mail", "archive"][..], "several pools were found: \""),
        (&["pool", "import", "mail"], "one is a copy of the other"),
        (&["pool", "import", "empty"], "no drive of such a pool was found"),
        (&["pool", "import", "archive", "--pool", "mail"], "no drive of such a pool was found"),
        (&["pool", "import", "none"], "none is not there"),
        (&["pool", "import", "archive", "--into", "empty"], "drives of the pool are files in archive"),
        (&["pool", "import", "archive", "--into", "empty", "--list"], "cannot be used with"),
    ] {
        let refused = bench.refused(arguments);
        assert!(refused.contains(story), "{arguments:?}: {refused}");
    }
    let none = bench.run(&["pool", "import", "empty", "--list"]);
    assert_eq!((none.code, none.stdout.trim_end()), (Some(1), "no drive of a pool was found"));
    done(&bench.run(&["pool", "import", "mail", "archive", "--pool", "archive"]));
    assert_eq!(show(&bench, "archive")["drives_in_use"], 1);
}

#[test]
fn a_pool_on_devices_is_imported_from_all_devices_there_are() {
    let Some(machine) = Machine::with(2) else { return };
    machine.create("letters-of-1893", &["sda", "sdb"]);
    fs::remove_dir_all(machine.bench.path("letters-of-1893")).unwrap();
    let listed = json_of(&done(&machine.bench.run(&["pool", "import", "--list", "--json"])));
    let mut named = listed.as_array().unwrap().iter().filter(|pool| pool["name"] == "letters-of-1893");
    let uuid = named.next().expect("it is found")["pool"].as_str().unwrap();
    done(&machine.bench.run(&["pool", "import", "--pool", uuid]));
    machine.is_whole("letters-of-1893", 2);
}

/// A pool of files on a filesystem of 400 MiB.
fn pool_on(kind: &str, options: &[&str]) -> Option<(Bench, LoopDevice, Mount)> {
    if !may_mount() {
        return None;
    }
    let device = LoopDevice::new(400 << 20)?;
    if !device.make_filesystem(kind, options) {
        return None;
    }
    let bench = Bench::new();
    let mount = device.mount(&bench, "disk");
    Some((bench, device, mount))
}

#[test]
fn a_sparse_drive_gets_its_space_back_or_is_warned_of() {
    let Some((bench, _device, _mount)) = pool_on("ext4", &["-q", "-m", "0"]) else { return };
    let created = bench.run(&["pool", "create", "disk/mail", "--size", "100MiB", "--drives", "2"]);
    assert_eq!((created.code, created.stderr.as_str()), (Some(0), ""), "all of its space is set aside");
    let drive = bench.path("disk/mail/drive-1.spindle");
    make_sparse(&bench, "disk/mail/drive-1.spindle");
    let said = bench.run(&["pool", "show", "disk/mail"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let story = "warning: disk/mail/drive-1.spindle was sparse: the ";
    assert!(
        said.stderr.starts_with(story) && said.stderr.contains("set aside for it now"),
        "{}",
        said.stderr
    );
    assert!(blocks_bytes(&drive) >= 100 << 20);
    assert_eq!(bench.run(&["pool", "show", "disk/mail"]).stderr, "", "it is said once");
    // // There is no more room: each opening warns, and the pool opens.
    make_sparse(&bench, "disk/mail/drive-1.spindle");
    let mut fill = Command::new("fallocate");
    fill.args(["-l", "260M"]).arg(bench.path("disk/filler"));
    assert!(fill.status().unwrap().success());
    let shown = show(&bench, "disk/mail");
    let warning = shown["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("drive-1.spindle is sparse and lacks ") && warning.contains("make room there"),
        "{warning}"
    );
    assert!(blocks_bytes(&drive) < 100 << 20, "none of what was left was taken");
}

/// Copies the drive there and back with a program that keeps holes.
fn make_sparse(bench: &Bench, name: &str) {
    let (path, copy) = (bench.path(name), bench.path("disk/copy"));
    let copied = Command::new("cp").arg("--sparse=always").args([&path, &copy]).status().unwrap();
    assert!(copied.success());
    fs::rename(copy, path).unwrap();
}

fn blocks_bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn where_changes_go_to_new_places_it_is_said_that_no_space_is_kept() {
    let Some((bench, _device, _mount)) = pool_on("btrfs", &["-q"]) else { return };
    let created = bench.run(&["pool", "create", "disk/mail", "--size", "64MiB", "--drives", "2"]);
    assert_eq!(created.code, Some(0), "{}", created.stderr);
    let story = "warning: disk/mail/drive-1.spindle lies on btrfs, which writes each change to a new place";
    assert!(created.stderr.starts_with(story), "{}", created.stderr);
    assert_eq!(
        show(&bench, "disk/mail")["warnings"].as_array().unwrap().len(),
        2,
        "and each time it is opened"
    );
}

#[test]
fn space_that_a_drive_shares_with_its_copy_is_not_kept_for_it() {
    let Some((bench, _device, _mount)) = pool_on("xfs", &["-q", "-m", "reflink=1"]) else { return };
    let created = bench.run(&["pool", "create", "disk/mail", "--size", "64MiB", "--drives", "2"]);
    assert_eq!((created.code, created.stderr.as_str()), (Some(0), ""));
    let mut copy = Command::new("cp");
    copy.arg("--reflink=always").arg(bench.path("disk/mail/drive-1.spindle")).arg(bench.path("disk/copy"));
    assert!(copy.status().unwrap().success());
    let said = bench.run(&["pool", "show", "disk/mail"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.starts_with("warning: disk/mail/drive-1.spindle shares "), "{}", said.stderr);
}
