//! Pools whose drives are on other machines: exports of QEMU's server and of the program itself.

use crate::{
    exported::{Exported, is_here, noise, text},
    pool_drives::{done, json, refused},
    pool_verbs::while_exported,
    spindle::{Bench, is_full_run},
};
use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use world::{BlockDevice, Buffer, ByteOffset, Stability};

const MIB: usize = 1 << 20;

/// A drive behind `qemu-nbd`, killed when dropped.
pub struct Shelf {
    child: Child,
    /// As `qemu-nbd` takes it.
    image: String,
    socket: PathBuf,
    options: Vec<&'static str>,
}

impl Shelf {
    /// Serves a new image of zeroes.
    fn begin(bench: &Bench, name: &str, options: &[&'static str]) -> Self {
        let image = bench.path(&format!("{name}.img"));
        fs::File::create(&image).unwrap().set_len(200 << 20).unwrap();
        Self::of(bench, name, text(&image), options)
    }

    /// Serves an image.
    pub fn of(bench: &Bench, name: &str, image: String, options: &[&'static str]) -> Self {
        let socket = bench.path(&format!("{name}.socket"));
        let child = serve(&image, &socket, options);
        Self { child, image, socket, options: options.to_vec() }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Ends it as a crash does. Its image stays.
    pub fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Serves the image again.
    pub fn restart(&mut self) {
        self.child = serve(&self.image, &self.socket, &self.options);
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(image: &str, socket: &Path, options: &[&str]) -> Child {
    let mut command = Command::new("qemu-nbd");
    command.args(["--format=raw", "--persistent", "--shared=0", "--socket"]).arg(socket);
    let child = command.args(options).arg(image).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it listens before long");
        thread::sleep(Duration::from_millis(5));
    }
    child
}

/// A pool on three of them, with a volume.
fn pool_of_three(bench: &Bench) -> Option<[Shelf; 3]> {
    if !is_here("qemu-nbd", "qemu-utils") {
        return None;
    }
    let shelves = ["one", "two", "three"].map(|name| Shelf::begin(bench, name, &[]));
    pool_on(bench, &shelves);
    Some(shelves)
}

/// A pool with a volume.
pub fn pool_on(bench: &Bench, shelves: &[Shelf]) {
    let uris: Vec<String> = shelves.iter().map(Shelf::uri).collect();
    let devices: Vec<&str> = uris.iter().flat_map(|uri| ["--device", uri]).collect();
    done(&bench.run(&[&["pool", "create", "mail"], &devices[..]].concat()));
    done(&bench.run(&["volume", "create", "mail/store", "120MiB"]));
}

pub fn letters(mib: usize, seed: u64) -> Vec<u8> {
    noise(mib * MIB, seed)
}

fn write(bench: &Bench, at_mib: usize, bytes: &[u8]) {
    while_exported(bench, async |client| {
        for (number, piece) in bytes.chunks(MIB).enumerate() {
            let data = vec![Arc::new(Buffer::copy_of(piece))];
            client
                .write(ByteOffset(((at_mib + number) * MIB) as u64), data, Stability::Stable)
                .await
                .unwrap();
        }
    });
}

#[track_caller]
pub fn check(bench: &Bench, at_mib: usize, bytes: &[u8]) {
    while_exported(bench, async |client| {
        let into = vec![Buffer::zeroed(bytes.len())];
        let read = client.read(ByteOffset((at_mib * MIB) as u64), into).await.unwrap();
        assert!(read[0][..] == *bytes, "it is what was written");
    });
}

#[track_caller]
pub fn is_whole(bench: &Bench, drives: u64) {
    let shown = json(bench, &["pool", "show", "mail"]);
    assert_eq!(
        (&shown["drives_in_use"], &shown["degraded_segments"]),
        (&drives.into(), &0.into()),
        "{shown}"
    );
}

#[test]
fn a_server_that_crashes_and_comes_back_soon_costs_a_pool_nothing() {
    let bench = Bench::new();
    let Some(mut shelves) = pool_of_three(&bench) else { return };
    let written = letters(24, 1);
    while_exported(&bench, async |client| {
        for (number, piece) in written.chunks(MIB / 4).enumerate() {
            if number == 24 {
                shelves[1].crash();
            }
            let data = vec![Arc::new(Buffer::copy_of(piece))];
            let done = client.write(ByteOffset((number * MIB / 4) as u64), data, Stability::Stable);
            if number == 24 {
                // The write is under way while the server is away.
                let back = thread::spawn(|| thread::sleep(Duration::from_millis(1500)));
                back.join().unwrap();
                shelves[1].restart();
            }
            done.await.unwrap();
        }
    });
    is_whole(&bench, 3);
    check(&bench, 0, &written);
    // All of them at once, as when a switch is started again.
    while_exported(&bench, async |client| {
        shelves.iter_mut().for_each(Shelf::crash);
        let piece = vec![Arc::new(Buffer::copy_of(&letters(1, 2)))];
        let done = client.write(ByteOffset((100 * MIB) as u64), piece, Stability::Stable);
        thread::sleep(Duration::from_millis(500));
        shelves.iter_mut().for_each(Shelf::restart);
        done.await.unwrap();
    });
    is_whole(&bench, 3);
    // Each of them alone has a copy of what the third one lacks.
    shelves[0].crash();
    check(&bench, 0, &written);
    check(&bench, 100, &letters(1, 2));
}

#[test]
fn a_server_that_was_away_gets_what_changed_meanwhile() {
    let bench = Bench::new();
    let Some(mut shelves) = pool_of_three(&bench) else { return };
    let (before, meanwhile) = (letters(40, 3), letters(8, 4));
    write(&bench, 0, &before);
    shelves[2].crash();
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("three.socket: not there: ") && shown.contains("Connection refused"), "{shown}");
    write(&bench, 60, &meanwhile);
    shelves[2].restart();
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("pool readmit"), "the next step is said: {shown}");
    let said = json(&bench, &["pool", "readmit", "mail", &shelves[2].uri()]);
    assert!(said["matched_bytes"].as_u64().unwrap() > 8 << 20, "most of it is there: {said}");
    is_whole(&bench, 3);
    shelves[0].crash();
    check(&bench, 0, &before);
    check(&bench, 60, &meanwhile);
}

#[test]
fn drives_here_and_elsewhere_share_a_pool_and_leave_it_by_their_uris() {
    const SECRET: &str = "a secret that only two know";
    let bench = Bench::new();
    if !is_here("qemu-nbd", "qemu-utils") {
        return;
    }
    fs::File::create(bench.path("disk.img")).unwrap().set_len(200 << 20).unwrap();
    bench.make_file("secret", SECRET.as_bytes());
    let exported = Exported::begin(&bench, &["disk.img", "--iscsi", "127.0.0.1:0"]);
    let shelf = Shelf::begin(&bench, "shelf", &[]);
    done(&bench.run(&["pool", "create", "mail", "--size", "200MiB", "--drives", "2"]));
    done(&bench.run(&["volume", "create", "mail/store", "120MiB"]));
    let written = letters(16, 5);
    write(&bench, 0, &written);
    let (unit, image) = (exported.uris[0].as_str(), shelf.uri());
    let chap = ["--chap-name", "mail", "--chap-secret-file", "secret"];
    let added = json(&bench, &[&["pool", "add-drive", "mail", "--device", unit], &chap[..]].concat());
    assert_eq!(added["path"], unit, "{added}");
    let record = fs::read_to_string(bench.path("mail/spindle-pool.json")).unwrap();
    assert!(
        record.contains("/secret\"") && !record.contains(SECRET),
        "where it is, not what it is: {record}"
    );
    let replaced = json(&bench, &["pool", "replace", "mail", "drive-1.spindle", &image]);
    assert_eq!(replaced["replaced_by"], image.replace(&text(&bench.path("")), "DIR/").as_str(), "{replaced}");
    fs::remove_file(bench.path("mail/drive-1.spindle")).unwrap();
    is_whole(&bench, 3);
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains(unit) && shown.contains("shelf.socket"), "{shown}");
    done(&bench.run(&["pool", "retire", "mail", unit]));
    exported.end();
    is_whole(&bench, 2);
    check(&bench, 0, &written);
}

#[test]
fn what_cannot_be_a_drive_is_refused_in_a_line() {
    if !is_full_run("waiting for drives that are not there") {
        return;
    }
    let bench = Bench::new();
    if !is_here("qemu-nbd", "qemu-utils") {
        return;
    }
    let (blank, other) = (Shelf::begin(&bench, "blank", &[]), Shelf::begin(&bench, "other", &[]));
    let fixed = Shelf::begin(&bench, "fixed", &["--read-only"]);
    let held = Shelf::begin(&bench, "held", &[]);
    let (blank_uri, other_uri) = (blank.uri(), other.uri());
    let create = |uri: &str, why: &str| {
        let arguments = ["pool", "create", "mail", "--device", &blank_uri, "--device", uri];
        refused(&bench, &arguments, why);
        assert!(!bench.path("mail").exists(), "nothing was made");
        for image in [&blank.image, &other.image] {
            assert!(
                fs::read(image).unwrap().iter().all(|&byte| byte == 0),
                "and nothing is left on {image:?}"
            );
        }
    };
    // Another name of the socket is found out by what it leads to.
    fs::hard_link(&blank.socket, bench.path("again.socket")).unwrap();
    create(&blank_uri, "are the same disk");
    create(&format!("nbd+unix:///?socket={}", text(&bench.path("again.socket"))), "are the same disk");
    create(&fixed.uri(), "is read-only");
    create("nbd+unix:///?socket=other.socket", "other.socket is a relative path");
    create(&format!("nbd+unix:///?socket={}", text(&bench.path("none"))), "No such file or directory");
    create("nbd://127.0.0.1:1/x", "Connection refused");
    let chap = ["pool", "create", "mail", "--chap-name", "mail", "--device", "iscsi://127.0.0.1:1/iqn.x:t/0"];
    refused(&bench, &chap, "each opening of the pool needs the CHAP secret");
    let filled = noise(MIB, 7);
    fs::write(&held.image, &filled).unwrap();
    create(&held.uri(), "is not empty");
    let devices = ["--device", &blank_uri, "--device", &other_uri];
    done(&bench.run(&[&["pool", "create", "mail"], &devices[..]].concat()));
    let taken = ["pool", "create", "logs", "--device", &blank_uri];
    refused(&bench, &taken, "it is a drive of the pool \"mail\"");
}

#[test]
fn a_lost_record_is_written_again_from_the_uris() {
    let bench = Bench::new();
    let Some(shelves) = pool_of_three(&bench) else { return };
    let written = letters(4, 6);
    write(&bench, 0, &written);
    fs::rename(bench.path("mail"), bench.path("lost")).unwrap();
    let uris = shelves.each_ref().map(Shelf::uri);
    let places: Vec<&str> = uris.iter().map(String::as_str).collect();
    let found = json(&bench, &[&["pool", "import", "--list"], &places[..]].concat());
    assert_eq!(found[0]["drives"].as_array().unwrap().len(), 3, "{found}");
    done(&bench.run(&[&["pool", "import", "--into", "mail"], &places[..]].concat()));
    is_whole(&bench, 3);
    check(&bench, 0, &written);
}
