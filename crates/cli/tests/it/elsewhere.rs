//! Devices elsewhere: proved by their URIs, with the same care as raw devices here.

use crate::{
    exported::Exported,
    spindle::{Bench, answered, is_full_run, json_of, short},
};
use std::{fs, io::Read, os::unix::net::UnixListener};

/// A file of zeroes for it.
fn make_disk(bench: &Bench, mib: u64) {
    fs::File::create(bench.path("disk.img")).unwrap().set_len(mib << 20).unwrap();
}

/// It, served over both protocols by the program itself: where it is.
struct Served {
    /// Ends with this.
    _exported: Exported,
    nbd: String,
    iscsi: String,
}

impl Served {
    fn begin(bench: &Bench) -> Self {
        let anywhere = "127.0.0.1:0";
        let exported = Exported::begin(bench, &["disk.img", "--nbd", anywhere, "--iscsi", anywhere]);
        let [nbd, iscsi] = &exported.uris[..] else { panic!("one over each: {:?}", exported.uris) };
        Self { nbd: nbd.clone(), iscsi: iscsi.clone(), _exported: exported }
    }
}

#[test]
fn a_device_elsewhere_is_proved_attached_to_and_blank_again_after_cleaning() {
    if !is_full_run("a run on a device elsewhere") {
        return;
    }
    let bench = Bench::new();
    make_disk(&bench, 160);
    let served = Served::begin(&bench);
    for (uri, reach) in
        [(&served.iscsi, "iSCSI, one session a group"), (&served.nbd, "NBD, one connection a group")]
    {
        let name = &reach[..3];
        answered(&bench.run(&short(&[uri, "--quiet", "--report", name])));
        if name == "NBD" {
            answered(&bench.run(&short(&[uri, "--quiet", "--report", "again", "--attach"])));
        }
        let report = fs::read_to_string(bench.path(&format!("{name}.json"))).unwrap();
        assert!(json_of(&report)["document"].to_string().contains(uri.as_str()), "the report names it");
        assert!(report.contains(reach), "and says how it is reached");
        let said = bench.run(&["prove", uri, "--clean"]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(said.stdout.trim_end().ends_with(", the device is blank again"), "{}", said.stdout);
    }
    let mut start = vec![0; 2 << 20];
    fs::File::open(bench.path("disk.img")).unwrap().read_exact(&mut start).unwrap();
    assert!(start.iter().all(|&byte| byte == 0), "nothing of ours is left at its beginning");
}

#[test]
fn what_a_device_elsewhere_holds_is_lost_only_when_its_serial_number_is_repeated() {
    let bench = Bench::new();
    let mut image = vec![0; 96 << 20];
    image[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    bench.make_file("disk.img", &image);
    let served = Served::begin(&bench);
    let refused = bench.refused(&short(&[&served.nbd]));
    assert!(
        refused.contains("is not empty: it holds ext") && refused.contains("no serial number"),
        "{refused}"
    );
    let refused = bench.refused(&short(&[&served.iscsi]));
    let serial = refused.split("--unlock-signature ").nth(1).expect("how to unlock it").trim().to_owned();
    let wrong = bench.refused(&short(&[&served.iscsi, "--unlock-signature", "1234"]));
    assert!(wrong.contains(&format!("its serial number is {serial}")), "{wrong}");
    let unlocked = bench.run(&short(&[&served.iscsi, "--unlock-signature", &serial, "--dry-run"]));
    assert_eq!(unlocked.code, Some(0), "{}", unlocked.stderr);
    assert!(fs::read(bench.path("disk.img")).unwrap() == image, "nothing was written yet");
}

#[test]
fn what_is_not_there_or_not_right_is_refused_in_a_line() {
    let bench = Bench::new();
    make_disk(&bench, 96);
    let served = Served::begin(&bench);
    let portal = served.iscsi.split('/').nth(2).unwrap();
    // Somebody listened there, and does so no more.
    let left = bench.path("left");
    drop(UnixListener::bind(&left).unwrap());
    let nobody = format!("nbd+unix:///x?socket={}", left.display());
    let port = served.nbd.split('/').nth(2).unwrap();
    for (uri, story) in [
        (format!("iscsi://{portal}/iqn.x:none/0"), "no such target"),
        (served.iscsi.replace("/0", "/9"), "no such unit"),
        (format!("iscsi://{portal}"), "it names no target; expected iscsi://HOST:PORT/TARGET/UNIT"),
        (format!("iscsi://{portal}/iqn.x/one"), "a unit is a number"),
        (format!("nbd://{port}/none"), "there is no export \"none\""),
        (nobody, "onnection refused"),
        ("nbd://".to_owned(), "expected nbd://HOST:PORT/EXPORT"),
    ] {
        let refused = bench.refused(&short(&[&uri]));
        assert!(refused.contains(story), "{uri}: {refused}");
    }
    let twice = bench.refused(&short(&[&served.nbd, &served.nbd]));
    assert!(twice.contains("are the same place"), "{twice}");
}

#[test]
fn a_secret_is_read_from_a_file_and_is_nowhere_in_what_a_run_leaves() {
    const SECRET: &str = "a secret of the mail";
    let bench = Bench::new();
    make_disk(&bench, 160);
    let served = Served::begin(&bench);
    bench.make_file("secret", format!("{SECRET}\n").as_bytes());
    bench.make_file("short", b"short\n");
    let uri = served.iscsi.as_str();
    let with_secret = uri.replace("iscsi://", &format!("iscsi://mail%{}@", SECRET.replace(' ', "-")));
    for (arguments, story) in [
        (
            &[uri, "--chap-name", "mail"][..],
            "CHAP needs a secret; put it into a file and say --chap-secret-file",
        ),
        (&[uri, "--chap-name", "mail", "--chap-secret-file", "none"], "No such file"),
        (&[uri, "--chap-name", "mail", "--chap-secret-file", "short"], "a CHAP secret has 12 to 255 bytes"),
        (&[&with_secret], "it must not contain a name and a secret"),
    ] {
        let refused = bench.refused(&short(arguments));
        assert!(refused.contains(story), "{refused}");
        assert!(!refused.contains("secret-of-the-mail"), "{refused}");
    }
    let chap = [uri, "--chap-name", "mail", "--chap-secret-file", "secret", "--digests"];
    let said = bench.run(&short(&[&chap[..], &["--report", "result"]].concat()));
    answered(&said);
    let mut left = said.stdout + &said.stderr;
    for name in ["result.html", "result.json", "result.run"] {
        left += &fs::read_to_string(bench.path(name)).unwrap();
    }
    assert!(left.contains("--chap-secret-file") && !left.contains(SECRET), "it is told to nobody");
}
