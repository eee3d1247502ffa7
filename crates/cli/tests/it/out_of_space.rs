//! A pool whose drive files are sparse, on a filesystem that fills up while hosts write.

use crate::{
    spindle::{Bench, Watchdog, signal},
    storage::{Mount, may_mount},
};
use nbd::{Client, ClientOptions, NbdUri};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs,
    os::unix::{fs::MetadataExt, net::UnixStream},
    process::{Child, Command, Stdio},
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use world::{
    BlockDevice, Buffer, ByteOffset, IoErrorKind, Random, Stability, World,
    real::{self, RealOptions, Sockets},
};

const PIECE_BYTES: u64 = 65_536;
const PIECES: u64 = (48 << 20) / PIECE_BYTES;
const WRITERS: u64 = 4;

/// The last acknowledged content of each piece of the volume, and the writes begun on it since.
#[derive(Default)]
struct Model {
    acknowledged: RefCell<BTreeMap<u64, u64>>,
    begun: RefCell<BTreeMap<u64, Vec<u64>>>,
    number_last: Cell<u64>,
    refused: Cell<u64>,
}

impl Model {
    /// Writes pieces of its own until it is refused.
    async fn write_on(self: Rc<Self>, client: Client, writer: u64) {
        let mut random = Random::new(1, &format!("writer {writer}"));
        loop {
            let piece = random.below(PIECES / WRITERS) * WRITERS + writer;
            self.number_last.set(self.number_last.get() + 1);
            let number = self.number_last.get();
            self.begun.borrow_mut().entry(piece).or_default().push(number);
            let data =
                vec![Arc::new(Buffer::copy_of(&number.to_le_bytes().repeat(PIECE_BYTES as usize / 8)))];
            match client.write(ByteOffset(piece * PIECE_BYTES), data, Stability::Stable).await {
                Ok(()) => {
                    self.begun.borrow_mut().remove(&piece);
                    self.acknowledged.borrow_mut().insert(piece, number);
                }
                Err(error) => {
                    assert_eq!(error.kind(), IoErrorKind::NoSpace, "{error}");
                    return self.refused.set(self.refused.get() + 1);
                }
            }
        }
    }

    async fn check(&self, client: &Client) {
        for piece in 0..PIECES {
            let read =
                client.read(ByteOffset(piece * PIECE_BYTES), vec![Buffer::zeroed(PIECE_BYTES as usize)]);
            let data = read.await.expect("every piece is read");
            let acknowledged = self.acknowledged.borrow().get(&piece).copied().unwrap_or(0);
            let begun = self.begun.borrow().get(&piece).cloned().unwrap_or_default();
            for block in data[0].chunks(4096) {
                let found = u64::from_le_bytes(*block.first_chunk().expect("a block"));
                assert!(
                    found == acknowledged || begun.contains(&found),
                    "piece {piece} holds {found}, not {acknowledged}"
                );
            }
        }
    }
}

/// The program, exporting the volume on a socket of the bench.
fn export(bench: &Bench) -> (Child, NbdUri) {
    let socket = bench.path("socket");
    let _ = fs::remove_file(&socket);
    let place = format!("unix:{}", socket.display());
    let mut command = bench.command(&["export", "small/mail/store", "--quiet", "--nbd", &place]);
    let child = command.stdout(Stdio::null()).spawn().expect("it starts");
    let begun = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it listens before long");
        thread::sleep(Duration::from_millis(5));
    }
    (child, format!("nbd+unix:///store?socket={}", socket.display()).parse().expect("an address"))
}

async fn connect(world: &World, uri: &NbdUri) -> Client {
    Client::connect(world, Rc::new(Sockets), uri.clone(), ClientOptions::default())
        .await
        .expect("it is served")
}

/// Takes all space of the filesystem but so much.
fn fill_up(bench: &Bench, but: u64) {
    let filler = fs::File::create(bench.path("small/filler")).expect("a file");
    let room = rustix::fs::statvfs(bench.path("small")).expect("a filesystem");
    let bytes = room.f_bavail * room.f_frsize - but;
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, bytes).expect("there is room");
}

/// Drive files that have space for what they hold, and for nothing else.
fn make_sparse(bench: &Bench, drives: u64) {
    for number in 1..=drives {
        let drive = bench.path(&format!("small/mail/drive-{number}.spindle"));
        let copy = bench.path("small/copy");
        let copied = Command::new("cp").arg("--sparse=always").arg(&drive).arg(&copy).status();
        assert!(copied.expect("there is a cp").success());
        fs::rename(&copy, &drive).expect("it takes its place");
        let about = fs::metadata(&drive).expect("it is there");
        assert!(about.blocks() * 512 < about.size() / 4, "it is sparse");
    }
}

#[test]
fn a_pool_on_a_filesystem_that_fills_up_opens_when_there_is_room_and_has_all_that_was_acknowledged() {
    if !may_mount() {
        return;
    }
    for ending in ["KILL", "INT"] {
        let bench = Bench::new();
        let _mount = Mount::tmpfs(&bench, "small", "size=400m");
        let made = bench.run(&["pool", "create", "small/mail", "--size", "80MiB", "--drives", "4"]);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        assert_eq!(bench.run(&["volume", "create", "small/mail/store", "48MiB"]).code, Some(0));
        make_sparse(&bench, 4);
        fill_up(&bench, 24 << 20);
        let model = Rc::new(Model::default());
        let (mut child, uri) = export(&bench);
        let watch = Watchdog::over(&child);
        real::run(1, RealOptions::default(), async |world: World| {
            for writer in 0..WRITERS {
                let client = connect(&world, &uri).await;
                world.spawn("writer", Rc::clone(&model).write_on(client, writer));
            }
            // // Requests under way when space ran out wait for a while; later writes are refused.
            let late = connect(&world, &uri).await;
            let begun = Instant::now();
            let refusal = loop {
                world.sleep(Duration::from_millis(100)).await;
                let data = vec![Arc::new(Buffer::zeroed(4096))];
                let before = model.number_last.get();
                world.sleep(Duration::from_millis(400)).await;
                if model.number_last.get() > before {
                    assert!(begun.elapsed() < Duration::from_secs(60), "space runs out before long");
                    continue;
                }
                match late.write(ByteOffset(PIECES * PIECE_BYTES - 4096), data, Stability::Stable).await {
                    Ok(()) => continue,
                    Err(error) => break error,
                }
            };
            assert_eq!(refusal.kind(), IoErrorKind::NoSpace, "{refusal}");
        });
        signal(&child, ending);
        child.wait().expect("it ends");
        watch.call_off();
        assert!(model.acknowledged.borrow().len() > 10, "something was acknowledged");
        fs::remove_file(bench.path("small/filler")).expect("it was there");
        let shown = bench.run(&["pool", "show", "small/mail"]);
        assert_eq!(shown.code, Some(0), "{}", shown.stderr);
        let (mut child, uri) = export(&bench);
        let watch = Watchdog::over(&child);
        real::run(1, RealOptions::default(), async |world: World| {
            model.check(&connect(&world, &uri).await).await;
        });
        signal(&child, "INT");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        watch.call_off();
    }
}
