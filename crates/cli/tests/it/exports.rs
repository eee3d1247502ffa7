//! Exports, as other programs and our own client see them.

use crate::{
    exported::{is_here, judge, noise, text},
    spindle::Bench,
};
use nbd::{Client, ClientOptions, NbdUri};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs,
    os::unix::net::UnixStream,
    process::{Child, Command, Output, Stdio},
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    real::{self, RealOptions, Sockets},
};

const MIB: usize = 1 << 20;

/// A server that is under way, and its end.
struct Serving {
    child: Child,
    uri: String,
}

impl Serving {
    /// Exports `files` of the bench on a socket in it, and waits until it listens.
    fn begin(bench: &Bench, arguments: &[&str]) -> Self {
        let socket = bench.path("socket");
        let place = format!("unix:{}", socket.display());
        let mut command = bench.command(&["export", "--nbd", &place]);
        let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it listens before long");
            thread::sleep(Duration::from_millis(5));
        }
        Self { child, uri: format!("nbd+unix:///disk?socket={}", socket.display()) }
    }

    /// Ends it as Ctrl-C does, and returns its output.
    fn interrupt(self) -> Output {
        let sent = Command::new("kill").args(["-s", "INT", &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success(), "it can be interrupted");
        self.child.wait_with_output().unwrap()
    }

    /// Ends it as a crash does: its socket stays behind.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn nbdinfo_and_nbdcopy_see_what_is_exported() {
    if !is_here("nbdinfo", "libnbd-bin") || !is_here("nbdcopy", "libnbd-bin") {
        return;
    }
    let bench = Bench::new();
    let serving = Serving::begin(&bench, &["disk.img", "--create", "8MiB", "--name", "disk"]);
    let info = judge("nbdinfo", &[&serving.uri]);
    for expected in ["newstyle-fixed", "structured packets", "export-size: 8388608", "base:allocation"]
        .into_iter()
        .chain(["can_multi_conn: true", "can_fua: true", "block_size_minimum: ", "is_read_only: false"])
    {
        assert!(info.contains(expected), "no {expected:?} in\n{info}");
    }
    let place = serving.uri.replace("/disk?", "/?");
    let listed = judge("nbdinfo", &["--list", &place]);
    assert!(listed.contains("export=\"disk\":"), "no list of exports: {listed}");
    let source = bench.make_file("source", &noise(8 * MIB, 1));
    judge("nbdcopy", &[&text(&source), &serving.uri]);
    judge("nbdcopy", &[&serving.uri, &text(&bench.path("back"))]);
    let map = judge("nbdinfo", &["--map", "--totals", &serving.uri]);
    assert!(map.contains("8388608 100.0%"), "what is written holds data: {map}");
    let uri = serving.uri.clone();
    let said = serving.interrupt();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert!(String::from_utf8_lossy(&said.stdout).starts_with(&uri), "it says where it is: {said:?}");
    let sent = fs::read(&source).unwrap();
    assert!(fs::read(bench.path("back")).unwrap() == sent, "what was read back");
    assert!(fs::read(bench.path("disk.img")).unwrap() == sent, "what lies in the file");
    assert!(!bench.path("socket").exists(), "nothing is left of the socket");
}

#[test]
fn acknowledged_writes_survive_a_server_killed_under_load() {
    let bench = Bench::new();
    let arguments = ["disk.img", "--create", "8MiB", "--name", "disk"];
    let serving = RefCell::new(Some(Serving::begin(&bench, &arguments)));
    let uri: NbdUri = serving.borrow().as_ref().unwrap().uri.parse().unwrap();
    real::run(5, RealOptions::default(), async |world: World| {
        let options = ClientOptions::default();
        let client = Client::connect(&world, Rc::new(Sockets), uri, options).await.unwrap();
        let answered: Rc<RefCell<BTreeMap<u64, u8>>> = Rc::default();
        let (is_over, writes) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0_u32)));
        // Each writer has blocks of its own, and one write under way.
        let writers: Vec<_> = (0..8_u64)
            .map(|writer| {
                let (client, answered) = (client.clone(), Rc::clone(&answered));
                let (is_over, writes) = (Rc::clone(&is_over), Rc::clone(&writes));
                world.spawn("writer", async move {
                    let mut round = 0_u64;
                    while !is_over.get() {
                        let (block, value) = (8 * (round % 256) + writer, (round % 250) as u8 + 1);
                        let data = vec![Arc::new(Buffer::copy_of(&[value; 4096]))];
                        client.write(ByteOffset(block * 4096), data, Stability::Stable).await.unwrap();
                        answered.borrow_mut().insert(block, value);
                        writes.set(writes.get() + 1);
                        round += 1;
                    }
                })
            })
            .collect();
        // However slow the machine is: some are answered before each kill, and after the last one.
        let work = async || {
            let before = writes.get();
            while writes.get() < before + 40 {
                world.sleep(Duration::from_millis(5)).await;
            }
        };
        for _ in 0..3 {
            work().await;
            serving.borrow_mut().take().unwrap().kill();
            *serving.borrow_mut() = Some(Serving::begin(&bench, &arguments));
        }
        work().await;
        is_over.set(true);
        for writer in writers {
            writer.await;
        }
        assert_eq!(client.breaks(), 3, "it came back each time");
        let answered = answered.take();
        assert!(answered.len() >= 40, "{} blocks were written", answered.len());
        for (&block, &value) in answered.iter() {
            let read = client.read(ByteOffset(block * 4096), vec![Buffer::zeroed(4096)]).await.unwrap();
            assert!(read[0].iter().all(|&byte| byte == value), "block {block} is {} not {value}", read[0][0]);
        }
    });
    assert_eq!(serving.into_inner().unwrap().interrupt().status.code(), Some(0));
}

#[test]
fn what_cannot_be_exported_is_refused_in_a_line() {
    let bench = Bench::new();
    bench.make_file("a.img", &[0; 4096]);
    let socket = |name: &str| format!("unix:{}", bench.path(name).display());
    let place = socket("socket");
    for (arguments, refusal) in [
        (
            &["none.img"][..],
            "opening none.img: No such file or directory (os error 2); make it with --create SIZE",
        ),
        (&["new.img", "--create", "1000"], "making new.img: 1000 bytes are not whole blocks of 4 KiB"),
        (&["a.img", "a.img"], "two exports would be called \"a.img\"; give each a name with --name"),
        (
            &["a.img", "--name", "a", "--name", "b"],
            "there are 1 paths and 2 names; say --name once for each path",
        ),
        (&["."], "opening .: neither a regular file nor a block device; export a file or a block device"),
    ] {
        let said = bench.refused(&[&["export", "--nbd", &place], arguments].concat());
        assert!(said.starts_with(&format!("spindle: {refusal}")), "{said}");
    }
    let said = bench.refused(&["export", "a.img", "--nbd", "host:port"]);
    assert!(said.contains("say HOST:PORT or unix:PATH"), "{said}");
    bench.make_file("taken", b"");
    let said = bench.refused(&["export", "a.img", "--nbd", &socket("taken")]);
    assert!(said.contains("end the program that listens there"), "{said}");
}
