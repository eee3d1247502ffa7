//! Backups of real filesystems opened on this host: read and written, in use, killed at each part, overdue.

use crate::{
    exported::{judge, judged, text},
    mail_host::{EXT4_GB, MailHost, can_mount, kill, wait_until},
    sites_served::Served,
    spindle::json_of,
};
use std::fs;

#[test]
fn an_open_backup_holds_its_moment_is_in_use_and_leaves_nothing() {
    if !can_mount(&[("mkfs.ext4", "e2fsprogs"), ("curl", "curl")]) {
        return;
    }
    let host = MailHost::begin(&[("ext", "ext4", EXT4_GB), ("blank", "ext4", EXT4_GB)]);
    fs::write(host.live("ext/letter"), "of before").unwrap();
    fs::create_dir(host.live("ext/folder")).unwrap();
    let number = host.back_up();
    fs::write(host.live("ext/letter"), "of later").unwrap();
    let folder = host.open(&number, &[]);
    assert_eq!(fs::read_to_string(folder.join("ext/letter")).unwrap(), "of before");
    assert!(fs::write(folder.join("ext/letter"), "x").is_err(), "it is read-only");
    let listed = host.answer(&["open", "--list"]);
    assert_eq!(
        (&listed[0]["state"], &listed[0]["kind"]),
        (&"open".into(), &"filesystems".into()),
        "{listed}"
    );
    // No rule and nobody deletes it meanwhile.
    host.done(&["release", "post", &number, "test"]);
    let refused = host.protect(&["delete", "post", &number, "--last"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    let again = host.protect(&["open", &format!("post@{number}")]);
    assert_eq!(again.code, Some(2), "{}", again.stdout);
    assert!(again.stderr.contains("is open already"), "{}", again.stderr);
    // Somebody is in it: they are named, and it closes once they leave.
    let mut user =
        std::process::Command::new("sleep").arg("60").current_dir(folder.join("ext")).spawn().unwrap();
    let held = host.protect(&["close", &format!("post@{number}")]);
    assert_eq!(held.code, Some(1), "{}{}", held.stdout, held.stderr);
    assert!(held.stdout.contains(&format!("used by sleep (process {})", user.id())), "{}", held.stdout);
    user.kill().unwrap();
    user.wait().unwrap();
    host.expect_nothing_left();

    // Writes reach the clone, and go with it; then its time is over.
    let folder = host.open(&number, &["--read-write", "--for", "4s", "--at", "here"]);
    assert_eq!(folder, host.bench.path("here"));
    fs::write(folder.join("ext/letter"), "on the clone").unwrap();
    judge("sync", &["-f", &text(&folder.join("ext"))]);
    wait_until("its time is over", || !folder.exists());
    host.expect_nothing_left();
    assert_eq!(fs::read_to_string(host.live("ext/letter")).unwrap(), "of later");
    host.done(&["delete", "post", &number, "--last"]);
}

#[test]
fn nothing_of_an_open_backup_stays_after_any_kill() {
    if !can_mount(&[("mkfs.ext4", "e2fsprogs"), ("curl", "curl")]) {
        return;
    }
    let mut host = MailHost::begin(&[("ext", "ext4", EXT4_GB)]);
    fs::write(host.live("ext/letter"), "of before").unwrap();
    let number = host.back_up();
    let backup = format!("post@{number}");
    // The process that serves it: its watcher takes all away.
    host.open(&number, &[]);
    kill(&host.processes(&number).0);
    host.expect_nothing_left();
    // Its watcher: there is another one, which does it, too.
    host.open(&number, &[]);
    let (keeper, watcher) = host.processes(&number);
    kill(&watcher);
    wait_until("there is another watcher", || host.processes(&number).1 != watcher);
    kill(&keeper);
    host.expect_nothing_left();
    // Both: the next opening takes it away, and says so.
    host.open(&number, &[]);
    let (keeper, watcher) = host.processes(&number);
    kill(&watcher);
    kill(&keeper);
    assert_eq!(host.answer(&["open", "--list"])[0]["state"], "left");
    let opened = host.protect(&["open", &backup]);
    assert_eq!(opened.code, Some(0), "{}{}", opened.stdout, opened.stderr);
    assert!(opened.stderr.contains("was left by a process that was killed"), "{}", opened.stderr);
    // The server: it comes back where it was, and the host goes on.
    host.served.take().unwrap().kill();
    let held = host.bench.path(&format!("run/open/post-{number}/ext/letter"));
    host.served = Some(Served::begin(&host.bench));
    assert_eq!(fs::read_to_string(held).unwrap(), "of before");
    host.done(&["close", &backup]);
    host.expect_nothing_left();
    // All of them, and the server again: the documented step.
    host.open(&number, &[]);
    let (keeper, watcher) = host.processes(&number);
    kill(&watcher);
    kill(&keeper);
    host.served.take().unwrap().kill();
    host.served = Some(Served::begin(&host.bench));
    assert!(!host.left().is_empty(), "something was left to be taken away");
    host.done(&["close", "--all"]);
    host.expect_nothing_left();
}

#[test]
fn what_a_host_that_died_left_on_the_server_goes_when_it_is_overdue() {
    if !can_mount(&[("mkfs.ext4", "e2fsprogs"), ("curl", "curl")]) {
        return;
    }
    let host = MailHost::begin(&[("ext", "ext4", EXT4_GB)]);
    let number = host.back_up();
    // Clones as another host would have made them: one is overdue, one is not, and one is a person's.
    for suffix in ["open-1-9-until-2020-01-01-000000", "open-1-9-until-2999-01-01-000000", "until-2020"] {
        host.done(&["restore", "post", &number, "--as", suffix]);
    }
    host.done(&["close", "--all"]);
    let mut volumes = host.volumes();
    volumes.sort();
    assert_eq!(volumes, ["ext", "ext-open-1-9-until-2999-01-01-000000", "ext-until-2020"]);

    // Nothing to mount: the command says why, and nothing stays of the attempt.
    judge("umount", &[&text(&host.live("ext"))]);
    let image = format!("of={}", text(&host.bench.path("ext.nbd")));
    judge("dd", &["if=/dev/zero", &image, "bs=1M", "count=64", "conv=notrunc,fsync", "status=none"]);
    let blank = host.answer(&["now", "post", "--hold", "test"])["number"].to_string();
    for more in [&[][..], &["--foreground"]] {
        let refused = host.protect(&[&["open", &format!("post@{blank}")], more].concat());
        assert_eq!(refused.code, Some(2), "{}", refused.stdout);
        assert!(refused.stderr.contains("can be mounted: mail/ext: empty"), "{}", refused.stderr);
    }
    let ours = |name: &String| !name.starts_with("ext-");
    assert_eq!(host.left().into_iter().filter(ours).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn volumes_are_files_of_their_size_and_partitions_too() {
    if !can_mount(&[("mkfs.ext4", "e2fsprogs"), ("curl", "curl"), ("sfdisk", "fdisk")]) {
        return;
    }
    let host = MailHost::begin(&[("ext", "ext4", EXT4_GB), ("parts", "ext4", EXT4_GB)]);
    fs::write(host.live("ext/letter"), "of before").unwrap();
    // Another table of contents: two partitions, one of them with a filesystem, the other blank.
    judge("umount", &[&text(&host.live("parts"))]);
    let image = text(&host.bench.path("parts.nbd"));
    let attached = judge("losetup", &["-n", "-O", "NAME", "-j", &image]);
    judge("losetup", &["-d", attached.trim()]);
    let table = host.bench.make_file("table", b"label: gpt\nsize=40960\nsize=20480\n");
    judge("sh", &["-c", &format!("sfdisk -q --wipe always {image} < {}", text(&table))]);
    let first = ["--direct-io=on", "-f", "--show", "-o", "1048576", "--sizelimit", "20971520", &image];
    let first = judge("losetup", &first);
    judge("mkfs.ext4", &["-q", first.trim()]);
    judge("losetup", &["-d", first.trim()]);
    judge("sync", &["-f", &image]);
    judge("sync", &["-f", &text(&host.live("ext"))]);
    let number = host.answer(&["now", "post", "--hold", "test"])["number"].to_string();

    let folder = host.bench.make_folder("images");
    let mut mounted = host
        .command(&["mount", &format!("post@{number}"), "images", "--json"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let image = folder.join("mail-ext.img");
    wait_until("the images are there", || image.exists());
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["mail-ext.img", "mail-parts.img", "mail-parts.part1.img", "mail-parts.part2.img"]);
    let bytes = (EXT4_GB * f64::from(1 << 30)) as u64;
    assert_eq!(fs::metadata(&image).unwrap().len(), bytes);
    assert_eq!(fs::metadata(folder.join("mail-parts.part1.img")).unwrap().len(), 20 << 20);
    assert!(fs::OpenOptions::new().write(true).open(&image).is_err(), "nothing can be written");
    // Strangers find in the files what is on the volume.
    let said = judged("debugfs", &["-R", "cat /letter", &text(&image)]);
    assert_eq!(String::from_utf8_lossy(&said.stdout), "of before");
    judge("e2fsck", &["-fn", &text(&folder.join("mail-parts.part1.img"))]);
    // Reads that are no whole sectors, at the end and across it.
    let whole = fs::read(&image).unwrap();
    assert_eq!(whole.len() as u64, bytes);
    let tail = judged("tail", &["-c", "1001", &text(&image)]);
    assert_eq!(tail.stdout, whole[whole.len() - 1001..]);
    let listed = host.answer(&["open", "--list"]);
    assert_eq!(listed[0]["kind"], "images", "{listed}");
    // Killed, it leaves nothing either.
    kill(&mounted.id().to_string());
    mounted.wait().unwrap();
    host.expect_nothing_left();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "the folder is as it was");

    // The filesystems: that of the partition, beside that of the other volume.
    let opened = host.answer(&["open", &format!("post@{number}")]);
    let places: Vec<_> = opened["parts"].as_array().unwrap().iter().map(|part| &part["place"]).collect();
    let place = |name: &str| {
        let folder = host.bench.path(&format!("run/open/post-{number}/{name}"));
        serde_json::Value::from(text(&folder))
    };
    assert_eq!(places, [&place("ext"), &place("parts-part1"), &serde_json::Value::Null], "{opened}");
    host.done(&["close", "--all"]);
    host.expect_nothing_left();
    let none = host.protect(&["close", "post@1"]);
    assert!(none.stderr.contains("post@1 is not open here"), "{}", none.stderr);
    assert_eq!(json_of(&host.done(&["open", "--list", "--json"])), serde_json::json!([]));
}
