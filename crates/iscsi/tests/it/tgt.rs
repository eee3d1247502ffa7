//! Our initiator with tgt as the target.

use iscsi::{
    initiator::{Initiator, InitiatorOptions, IscsiUri, discover},
    session::chap::{Credentials, Secret},
    wire::pdu::Digests,
};
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability, World,
    real::{self, RealOptions, Sockets},
};

const TARGET: &str = "iqn.2026-11.test:t";
const SIZE: u64 = 16 << 20;

/// tgtd with one target and one LUN backed by a file.
struct Tgt {
    folder: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Tgt {
    /// `None`, with a line that says so, if tgt is not installed.
    fn begin(accounts: &[[&str; 3]]) -> Option<Self> {
        let is_there = Command::new("tgtadm").arg("--version").output().is_ok();
        let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
        assert!(is_there || !required, "tgtd is required: apt-get install tgt");
        if !is_there {
            println!("skipped: tgtd is not installed (apt-get install tgt)");
            return None;
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::File::create(folder.path().join("disk")).unwrap().set_len(SIZE).unwrap();
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut tgt = Self { folder, port, child: None };
        tgt.start(accounts);
        Some(tgt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("TGT_IPC_SOCKET", self.folder.path().join("socket"));
        command
    }

    fn start(&mut self, accounts: &[[&str; 3]]) {
        let portal = format!("portal=127.0.0.1:{}", self.port);
        let mut command = self.command("tgtd");
        command.args(["-f", "--iscsi", &portal]).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() || !self.asks(&["--op", "show"]) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it listens before long");
            thread::sleep(Duration::from_millis(10));
        }
        let disk: PathBuf = self.folder.path().join("disk");
        let disk = disk.display().to_string();
        self.must(&["--op", "new", "--tid", "1", "-T", TARGET]);
        let unit = ["--op", "new", "--tid", "1", "--lun", "1", "-b", &disk];
        assert!(self.admin("logicalunit", &unit), "a unit is made");
        for [name, secret, flag] in accounts {
            assert!(self.admin("account", &["--op", "new", "--user", name, "--password", secret]));
            let mut bind = vec!["--op", "bind", "--tid", "1", "--user", name];
            bind.extend((!flag.is_empty()).then_some(*flag));
            assert!(self.admin("account", &bind), "an account is bound");
        }
        self.must(&["--op", "bind", "--tid", "1", "-I", "ALL"]);
    }

    fn admin(&self, mode: &str, arguments: &[&str]) -> bool {
        let mut command = self.command("tgtadm");
        command.args(["--lld", "iscsi", "--mode", mode]).args(arguments);
        command.output().unwrap().status.success()
    }

    fn asks(&self, arguments: &[&str]) -> bool {
        self.admin("target", arguments)
    }

    fn must(&self, arguments: &[&str]) {
        assert!(self.asks(arguments), "tgtadm {arguments:?}");
    }

    fn kill(&mut self) {
        let mut child = self.child.take().expect("it is under way");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn uri(&self) -> IscsiUri {
        format!("iscsi://127.0.0.1:{}/{TARGET}/1", self.port).parse().unwrap()
    }

    async fn connect(&self, world: &World, options: InitiatorOptions) -> world::IoResult<Initiator> {
        Initiator::connect(world, Rc::new(Sockets), self.uri(), options).await
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

fn in_world(test: impl AsyncFnOnce(World)) {
    real::run(7, RealOptions::default(), test);
}

#[test]
fn tgt_reads_back_what_was_written_with_and_without_digests() {
    let Some(tgt) = Tgt::begin(&[]) else { return };
    in_world(async |world: World| {
        let found =
            discover(&world, &Sockets, &tgt.uri().address, &InitiatorOptions::default()).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, TARGET);
        for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
            let options =
                InitiatorOptions { digests: Digests { header, data }, ..InitiatorOptions::default() };
            let device = tgt.connect(&world, options).await.unwrap();
            assert_eq!((device.geometry().size, device.info().vendor.as_str()), (ByteCount(SIZE), "IET"));
            let mut random = world.random(if header { "with" } else { "without" });
            let mut content = vec![0; SIZE as usize];
            random.fill(&mut content);
            // Concurrent writes, from less than FirstBurstLength to more than one transfer.
            let mut writes = Vec::new();
            let mut at = 0;
            for length in
                [512, 4096, 65_536, 300_032, 1 << 20, 5 << 20, SIZE - (1 << 20) - (5 << 20) - 370_176]
            {
                let data = Arc::new(Buffer::copy_of(&content[at as usize..][..length as usize]));
                writes.push(device.write(ByteOffset(at), vec![data], Stability::Volatile));
                at += length;
            }
            assert_eq!(at, SIZE);
            for write in writes {
                write.await.unwrap();
            }
            device.flush().await.unwrap();
            let mut reads = Vec::new();
            for _ in 0..64 {
                let sectors = 1 + random.below(512);
                let at = 512 * random.below(SIZE / 512 - sectors + 1);
                let read = device.read(ByteOffset(at), vec![Buffer::zeroed(512 * sectors as usize)]);
                reads.push((at as usize, read));
            }
            for (at, read) in reads {
                let read = read.await.unwrap();
                assert!(read[0][..] == content[at..][..read[0].len()], "{header} {data} at {at}");
            }
            assert!(fs::read(tgt.folder.path().join("disk")).unwrap() == content, "what lies in the file");
            assert_eq!(device.breaks(), 0);
        }
    });
}

#[test]
fn mutual_chap_with_tgt() {
    let (own, theirs) = ("a secret of mine", "one of the target");
    let accounts = [["mail", own, ""], ["store", theirs, "--outgoing"]];
    let Some(tgt) = Tgt::begin(&accounts) else { return };
    let who = |name: &str, secret: &str| {
        Some(Credentials { name: name.to_owned(), secret: Secret::new(secret).unwrap() })
    };
    in_world(async |world: World| {
        for (credentials, target_credentials, is_let_in) in [
            (None, None, false),
            (who("mail", own), None, true),
            (who("mail", "another than mine"), None, false),
            (who("male", own), None, false),
            (who("mail", own), who("store", theirs), true),
            (who("mail", own), who("store", "another than its own"), false),
            (who("mail", own), who("shop", theirs), false),
        ] {
            let story = format!("{credentials:?} {target_credentials:?}");
            let options = InitiatorOptions { credentials, target_credentials, ..InitiatorOptions::default() };
            match tgt.connect(&world, options).await {
                Ok(device) => {
                    assert!(is_let_in, "{story}");
                    device.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
                }
                Err(error) => {
                    assert!(!is_let_in, "{story}: {error}");
                    assert_eq!(error.kind(), IoErrorKind::PermissionDenied, "{error}");
                    assert!(!error.to_string().contains("mine"), "secrets are not told: {error}");
                }
            }
        }
    });
}

#[test]
fn writes_continue_after_tgt_is_killed_and_restarted() {
    let Some(mut tgt) = Tgt::begin(&[]) else { return };
    in_world(async |world: World| {
        let device = tgt.connect(&world, InitiatorOptions::default()).await.unwrap();
        for kill in 0..2_u64 {
            let mut writes = Vec::new();
            for round in 20 * kill..20 * (kill + 1) {
                if round % 20 == 10 {
                    tgt.kill();
                    tgt.start(&[]);
                }
                for lane in 0..8 {
                    let data = vec![Arc::new(Buffer::copy_of(&[(round + 1) as u8; 4096]))];
                    let at = ByteOffset(4096 * (round * 8 + lane));
                    writes.push(device.write(at, data, Stability::Stable));
                }
                world.sleep(Duration::from_millis(2)).await;
            }
            // All must complete: the initiator has reconnected before the next kill.
            for write in writes {
                write.await.unwrap();
            }
        }
        assert!(device.breaks() >= 2, "it came back each time");
        for block in 0..320_u64 {
            let read = device.read(ByteOffset(4096 * block), vec![Buffer::zeroed(4096)]).await.unwrap();
            assert!(read[0].iter().all(|&byte| u64::from(byte) == block / 8 + 1), "block {block}");
        }
    });
}
