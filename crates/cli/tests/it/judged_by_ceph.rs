//! A pool on three block devices of a real Ceph, which QEMU's server exports. In full runs only: it takes a minute.

use crate::{
    exported::{is_here, text},
    pool_drives::{done, json},
    remote_drives::{Shelf, check, is_whole, letters, pool_on},
    spindle::Bench,
};
use std::{
    env, fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use world::{BlockDevice, Buffer, ByteOffset, Stability};

const OSDS: usize = 3;

/// A monitor, a manager and three OSDs on files, without authentication; ended when dropped.
struct Ceph {
    folder: PathBuf,
    conf: String,
    daemons: Vec<Child>,
}

impl Ceph {
    fn begin(bench: &Bench) -> Self {
        let folder = bench.make_folder("ceph");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = folder.display();
        let conf = format!(
            "[global]\n\
             fsid = 7c6f1d5e-0a54-4f0c-9b7c-5d2c3c0f6a11\n\
             mon host = v1:127.0.0.1:{port}\n\
             auth cluster required = none\nauth service required = none\nauth client required = none\n\
             osd pool default size = 2\nosd pool default min size = 1\nosd crush chooseleaf type = 0\n\
             bluestore block size = 2147483648\nosd memory target = 939524096\n\
             mon data = {at}/mon.$id\nmgr data = {at}/mgr.$id\nosd data = {at}/osd.$id\n\
             log file = {at}/$name.log\nadmin socket = {at}/$name.$pid.asok\nrun dir = {at}\n\
             public addr = 127.0.0.1\ncluster addr = 127.0.0.1\n\
             mon osd full ratio = 0.99\nmon osd backfillfull ratio = 0.98\nmon osd nearfull ratio = 0.97\n\
             mon data avail warn = 1\nmon data avail crit = 1\n"
        );
        fs::write(folder.join("ceph.conf"), conf).unwrap();
        let conf = text(&folder.join("ceph.conf"));
        let mut ceph = Self { folder, conf, daemons: Vec::new() };
        let map = text(&ceph.folder.join("monmap"));
        let monitor = format!("[v1:127.0.0.1:{port}]");
        let id = "7c6f1d5e-0a54-4f0c-9b7c-5d2c3c0f6a11";
        ceph.run("monmaptool", &["--create", "--addv", "a", &monitor, "--fsid", id, &map]);
        fs::create_dir(ceph.folder.join("mgr.x")).unwrap();
        ceph.run("ceph-mon", &["--mkfs", "-i", "a", "--monmap", &map]);
        ceph.daemon("ceph-mon", "a");
        ceph.daemon("ceph-mgr", "x");
        for number in 0..OSDS {
            let number = number.to_string();
            let id = format!("00000000-0000-4000-8000-00000000000{number}");
            fs::create_dir(ceph.folder.join(format!("osd.{number}"))).unwrap();
            ceph.ask(&["osd", "new", &id, &number]);
            ceph.run("ceph-osd", &["-i", &number, "--mkfs", "--osd-uuid", &id]);
            ceph.daemon("ceph-osd", &number);
        }
        let begun = Instant::now();
        while !ceph.ask(&["osd", "stat"]).contains("3 up") {
            assert!(begun.elapsed() < Duration::from_secs(120), "it is up before long");
            thread::sleep(Duration::from_millis(500));
        }
        ceph.ask(&["osd", "pool", "create", "vol", "16", "16"]);
        ceph
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        let output = command.args(["-c", &self.conf]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {said}{complaint}");
        said
    }

    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> String {
        self.run("ceph", &[&["--connect-timeout", "60"], arguments].concat())
    }

    fn daemon(&mut self, program: &str, id: &str) {
        let mut command = Command::new(program);
        command.args(["-c", &self.conf, "-f", "-i", id]).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemons.push(command.spawn().unwrap());
    }

    /// The OSD of that number ends as in a crash, and begins again.
    fn crash_osd(&mut self, number: usize) {
        let osd = &mut self.daemons[2 + number];
        osd.kill().unwrap();
        osd.wait().unwrap();
        let mut command = Command::new("ceph-osd");
        command.args(["-c", &self.conf, "-f", "-i", &number.to_string()]);
        *osd = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    }

    fn shelf(&self, bench: &Bench, name: &str) -> Shelf {
        self.run("rbd", &["create", &format!("vol/{name}"), "--size", "200M", "--image-feature", "layering"]);
        Shelf::of(bench, name, format!("rbd:vol/{name}:conf={}", self.conf), &["--cache=writeback"])
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
fn a_pool_on_ceph_outlives_an_osd_and_a_server_that_crash_under_load() {
    if env::var_os("SPINDLE_FULL").is_none() {
        println!("skipped: a Ceph of three OSDs is for full runs");
        return;
    }
    let packages = ["ceph-mon", "ceph-mgr", "ceph-osd"].map(|program| (program, program));
    let all = packages.into_iter().chain([("rbd", "ceph-common"), ("qemu-nbd", "qemu-utils")]);
    if !all.into_iter().all(|(program, package)| is_here(program, package)) {
        return;
    }
    let bench = Bench::new();
    let mut ceph = Ceph::begin(&bench);
    let mut shelves = ["one", "two", "three"].map(|name| ceph.shelf(&bench, name));
    pool_on(&bench, &shelves);
    let written = letters(48, 1);
    crate::pool_verbs::while_exported(&bench, async |client| {
        for (number, piece) in written.chunks(1 << 20).enumerate() {
            match number {
                12 => ceph.crash_osd(1),
                24 => {
                    shelves[1].crash();
                    shelves[1].restart();
                }
                36 => ceph.crash_osd(2),
                _ => {}
            }
            let data = vec![std::sync::Arc::new(Buffer::copy_of(piece))];
            client.write(ByteOffset((number << 20) as u64), data, Stability::Stable).await.unwrap();
        }
    });
    is_whole(&bench, 3);
    check(&bench, 0, &written);
    let scrubbed = json(&bench, &["pool", "scrub", "mail"]);
    assert_eq!((&scrubbed["mended"], &scrubbed["lost_places"]), (&0.into(), &0.into()), "{scrubbed}");
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    println!("note: {}", shown.lines().next().unwrap());
}
