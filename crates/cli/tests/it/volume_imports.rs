//! Imports of volumes: through a server beside a client, over a kill of the server and a source that hangs; in a stopped
//! pool; and the way out again (docs/leaving.md).

use crate::{
    exported::{Exported, is_here, judge, noise, text},
    judged_exports::until,
    online_pools::WaitingVerb,
    pool_drives::done,
    qemu_io::QemuIo,
    sites_served::{SITE, Served, qemu_is_here},
    spindle::{Bench, json_of, signal},
};
use std::{
    fs,
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
};
use world::{World, real};

const MAIL: &str = "state/pools/mail";
const MIB: usize = 1 << 20;

/// An export of a file by QEMU, killed when dropped.
struct OldArray(Child);

impl OldArray {
    /// Answers slowly, so that an import takes some seconds.
    fn begin(bench: &Bench, file: &str) -> (Self, String) {
        let (socket, file) = (text(&bench.path("old.sock")), text(&bench.path(file)));
        let image = format!(
            "driver=throttle,throttle-group=slow,file.driver=raw,file.file.driver=file,file.file.filename={file}"
        );
        let mut command = Command::new("qemu-nbd");
        command.args(["-r", "-t", "-e", "8", "-k", &socket]);
        command.args(["--object", "throttle-group,id=slow,x-bps-read=8388608", "--image-opts", &image]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("it listens before long", || UnixStream::connect(&socket).is_ok());
        (Self(child), format!("nbd+unix:///?socket={socket}"))
    }
}

impl Drop for OldArray {
    fn drop(&mut self) {
        signal(&self.0, "CONT");
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// 16 MiB of data with 8 MiB of zeroes among them.
fn contents() -> Vec<u8> {
    let mut bytes = noise(24 * MIB, 7);
    bytes[4 * MIB..12 * MIB].fill(0);
    bytes
}

/// Runs a verb that is refused. Returns what it says.
#[track_caller]
fn refused(bench: &Bench, arguments: &[&str]) -> String {
    let said = bench.run(arguments);
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    said.stderr
}

#[test]
fn a_volume_is_used_while_it_is_imported_and_all_is_there_after_a_kill_of_the_server() {
    if !qemu_is_here() || !is_here("qemu-nbd", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    let mut wanted = contents();
    bench.make_file("old.img", &wanted);
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    let (old, source) = OldArray::begin(&bench, "old.img");
    let volume = format!("{MAIL}/moved");
    let import = ["volume", "import", &volume, "--from", &source];
    let waiting = WaitingVerb::begin(&bench, &import);
    let shown = || done(&bench.run(&["pool", "show", MAIL]));
    until("the volume is there", || shown().contains("volume moved: 24.0 MiB"));
    let at = ["--server", &format!("unix:{}", bench.path("state/spindle.sock").display())];
    // The server shows a new volume with its next view.
    let export = || bench.run(&[&["export", "create", "moved", "mail/moved"], &at[..]].concat());
    until("it is served", || export().code == Some(0));
    let uri = served.uri("/store").replace("/store", "/moved");
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", &uri);
        client.says("write -P 9 1M 1M", "wrote", 1).await;
        client.says("write -P 8 20480000 512", "wrote", 2).await;
        client.says("write -z 23M 1M", "wrote", 3).await;
        client.says("read -P 0 5M 1M", "read", 1).await;
        client.says("flush", "qemu-io>", 5).await;
        let said = client.end().await;
        assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    });
    wanted[MIB..2 * MIB].fill(9);
    wanted[20_480_000..20_480_512].fill(8);
    wanted[23 * MIB..].fill(0);
    assert!(shown().contains("imported from nbd+unix:"), "it takes some seconds: {}", shown());
    let said = refused(&bench, &["volume", "snapshot", &format!("{volume}@monday")]);
    assert!(said.contains("is being imported"), "{said}");
    signal(&old.0, "STOP");
    served.kill();
    let (code, said) = waiting.end();
    assert_eq!(code, Some(2), "{said}");
    // The source hangs while the server starts, and answers later.
    let served = Served::begin(&bench);
    let line = shown();
    assert!(line.contains("imported from nbd+unix:"), "{line}");
    signal(&old.0, "CONT");
    done(&bench.run(&["job", "wait", &format!("{MAIL}/import")]));
    drop(old);
    let line = shown();
    assert!(line.contains("volume moved: 24.0 MiB") && !line.contains("imported from"), "{line}");
    bench.make_file("wanted.img", &wanted);
    let uri = served.uri("/store").replace("/store", "/moved");
    judge("qemu-img", &["compare", "-f", "raw", "-F", "raw", &text(&bench.path("wanted.img")), &uri]);
    done(&bench.run(&["volume", "snapshot", &format!("{volume}@monday")]));
    let listed = done(&bench.run(&["job", "list", "--state", "state"]));
    assert!(listed.contains("mail/import: idle, done at"), "{listed}");
    served.end();
}

#[test]
fn a_file_is_imported_into_a_stopped_pool_and_leaves_it_again_as_it_was() {
    let bench = Bench::new();
    let wanted = contents();
    let file = bench.make_file("old.img", &wanted);
    done(&bench.run(&["pool", "create", "mail", "--drives", "2", "--size", "128MiB"]));
    let import = ["volume", "import", "mail/store", "--from", "old.img"];
    let said = json_of(&done(&bench.run(&[&import[..], &["--json"]].concat())));
    let size = (24 * MIB) as u64;
    assert_eq!((&said["done"], &said["size_bytes"]), (&"imported".into(), &size.into()));
    assert_eq!((&said["copied_bytes"], &said["compared_bytes"]), (&((16 * MIB) as u64).into(), &size.into()));
    assert_eq!((&said["host_bytes"], &said["bad_bytes"]), (&0.into(), &0.into()));
    let said = refused(&bench, &import);
    assert!(said.contains("\"store\" exists already"), "{said}");
    let said = refused(&bench, &["volume", "import", "mail/other", "--from", "missing.img"]);
    assert!(said.contains("missing.img"), "{said}");
    bench.make_file("odd.img", &[1; 1000]);
    let said = refused(&bench, &["volume", "import", "mail/other", "--from", "odd.img"]);
    assert!(said.contains("1000 bytes"), "{said}");
    // Read once: 16 MiB have data there, and 8 are zeroes.
    let once = ["volume", "import", "mail/once", "--from", "old.img", "--read-once"];
    let said = json_of(&done(&bench.run(&[&once[..], &["--json"]].concat())));
    let (zeroes, data) = ((8 * MIB) as u64, (16 * MIB) as u64);
    assert_eq!((&said["compared_bytes"], &said["read_back_bytes"]), (&zeroes.into(), &data.into()));
    done(&bench.run(&["pool", "salvage", "mail/once", "once.img"]));
    assert!(fs::read(bench.path("once.img")).unwrap() == wanted, "as it came");
    done(&bench.run(&["volume", "delete", "mail/once", "--yes", "once"]));
    let said = done(&bench.run(&once));
    assert!(
        said.contains("16.0 MiB read back in the pool alone, so a change in the source is not noticed"),
        "{said}"
    );
    // Nothing is needed of the source any more.
    fs::remove_file(file).unwrap();
    if !is_here("qemu-img", "qemu-utils") {
        return;
    }
    let place = format!("unix:{}", text(&bench.path("socket")));
    let exported = Exported::begin(&bench, &["mail/store", "--read-only", "--nbd", &place]);
    let uri = exported.uris[0].clone();
    let (raw, packed) = (text(&bench.path("store.img")), text(&bench.path("store.qcow2")));
    judge("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, &raw]);
    judge("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &packed]);
    exported.end();
    assert!(fs::read(&raw).unwrap() == wanted, "as it came");
    judge("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &raw, &packed]);
    // And without any other tool.
    done(&bench.run(&["pool", "salvage", "mail/store", "salvaged.img"]));
    assert!(fs::read(bench.path("salvaged.img")).unwrap() == wanted, "as it came");
}
