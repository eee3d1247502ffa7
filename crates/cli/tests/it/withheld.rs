//! A volume rolled back under QEMU's clients, by a server in this process.

use crate::{
    exported::{is_here, text},
    pool_drives::done,
    spindle::Bench,
};
use array::{
    format::{SnapshotId, VolumeId},
    pool::RollbackGoal,
};
use serving::{
    export::{ExportSettings, IscsiEndpoints, OpenExports, identities, listen, nbd_endpoint, target_plan},
    notices::Notices,
};
use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
    rc::Rc,
    time::Duration,
};
use world::{
    Address, BlockDevice, Buffer, ByteOffset, World,
    real::{self, RealOptions},
};

struct Silent;

impl Notices for Silent {
    fn note(&self, _: &str) {}
    fn warn(&self, _: &str) {}
}

/// `qemu-io` with a session of its own, which takes commands until it is dropped or ended.
struct Client {
    child: Child,
    said: PathBuf,
    world: World,
}

impl Client {
    fn begin(bench: &Bench, world: &World, name: &str, uri: &str) -> Self {
        let said = bench.path(name);
        let file = fs::File::create(&said).unwrap();
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", "-t", "none", uri]).stdin(Stdio::piped());
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { child, said, world: world.clone() }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Gives a command, and waits until `words` were said as often as `times`.
    async fn says(&mut self, command: &str, words: &str, times: usize) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{command}").unwrap();
        stdin.flush().unwrap();
        for _ in 0..2_000 {
            if self.said().matches(words).count() >= times {
                return;
            }
            self.world.sleep(Duration::from_millis(10)).await;
        }
        panic!("{command:?} did not make it say {words:?}: {}", self.said());
    }

    /// Lets it close its session.
    async fn end(mut self) -> String {
        drop(self.child.stdin.take());
        while self.child.try_wait().unwrap().is_none() {
            self.world.sleep(Duration::from_millis(10)).await;
        }
        self.said()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn values(device: &Rc<dyn BlockDevice>) -> [u8; 2] {
    let mut values = [0; 2];
    for (value, at) in values.iter_mut().zip([0, 1 << 20]) {
        let read = device.read(ByteOffset(at), vec![Buffer::zeroed(65536)]).await.unwrap();
        *value = read[0][0];
        assert!(read[0].iter().all(|byte| byte == value), "one pattern");
    }
    values
}

const WROTE: &str = "wrote 65536/65536";

#[test]
fn after_a_forced_rollback_no_write_of_a_session_from_before_arrives() {
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "200MiB", "--drives", "2"]));
    done(&bench.run(&["volume", "create", "mail/store", "64MiB"]));
    let (folder, socket) = (bench.path("mail"), bench.path("socket"));
    real::run(7, RealOptions::default(), async |world: World| {
        let notices: Rc<dyn Notices> = Rc::new(Silent);
        let settings = ExportSettings {
            read_only: false,
            create: None,
            write_cache: None,
            block_bytes: (512, 4096),
            is_removable: false,
        };
        let mut exports = OpenExports::default();
        let path = folder.join("store");
        exports.add(&world, "store".to_owned(), &path, &settings, &notices, &|_| ()).await.unwrap();
        let identities = identities(&world, &exports.shared, &bench.path("state"), &*notices).unwrap();
        let nbd = listen(Some(Address::Unix(socket.clone())), "nbd").await.unwrap().unwrap();
        let iscsi = listen(Some(Address::parse("127.0.0.1:0", 0).unwrap()), "iscsi").await.unwrap().unwrap();
        let nbd = nbd_endpoint(&world, (nbd, nbd::TlsMode::Off), &exports.shared, &settings, Rc::new(|_| ()));
        let plan = target_plan(None, &["store".to_owned()]).unwrap();
        let tell: Rc<dyn Fn(iscsi::target::TargetEvent)> = Rc::new(|_| ());
        let (units, _targets) = IscsiEndpoints::new(plan, iscsi, Vec::new()).open(
            &world,
            (&exports.shared, &identities),
            &settings,
            &tell,
        );
        let uris = (nbd.offers[0].uri.clone(), units[0].offers[0].uri.clone());
        for endpoint in units.into_iter().chain([nbd]) {
            world.spawn("export", endpoint.serving);
        }
        let (pool, shared) = (exports.pool(&folder).unwrap(), &exports.shared[0]);
        let mut by_nbd = Client::begin(&bench, &world, "nbd", &uris.0);
        let mut by_iscsi = Client::begin(&bench, &world, "iscsi", &uris.1);
        by_nbd.says("write -P 1 0 64k", WROTE, 1).await;
        by_iscsi.says("write -P 1 1M 64k", WROTE, 1).await;
        pool.snapshot(&["store"], "monday", SnapshotId([9; 16])).await.unwrap();
        by_nbd.says("write -P 2 0 64k", WROTE, 2).await;
        by_iscsi.says("write -P 2 1M 64k", WROTE, 2).await;
        assert_eq!(values(&shared.device).await, [2, 2]);

        let goal = RollbackGoal::Snapshot("nothing".into());
        shared.served.roll_back(pool, ("store", goal), VolumeId([8; 16])).await.expect_err("no such one");
        assert!(shared.served.withheld_from() == Default::default(), "a failed one withholds nothing");
        by_iscsi.says("write -P 2 1M 64k", WROTE, 3).await;
        let goal = RollbackGoal::Snapshot("monday".into());
        let done = shared.served.roll_back(pool, ("store", goal), VolumeId([8; 16])).await.unwrap();
        assert_eq!(done.left_name, "store~1");
        assert!(done.withheld.nbd && done.withheld.initiators.len() == 1, "{done:?}");
        assert_eq!(values(&shared.device).await, [1, 1]);

        by_nbd.says("write -P 3 0 64k", "failed", 1).await;
        by_iscsi.says("write -P 3 1M 64k", "failed", 1).await;
        // A reconnect is not enough.
        let refused = Client::begin(&bench, &world, "nbd-again", &uris.0).end().await;
        assert!(refused.contains("the export is withheld, because its contents changed"), "{refused}");
        let mut again = Client::begin(&bench, &world, "iscsi-again", &uris.1);
        again.says("write -P 3 1M 64k", "\n", 1).await;
        let refused = again.end().await;
        assert!(!refused.contains(WROTE), "{refused}");
        assert_eq!(values(&shared.device).await, [1, 1], "nothing of it arrived");

        // The initiator logs out by command; NBD clients have no names and must be readmitted.
        by_iscsi.end().await;
        assert!(shared.served.withheld_from().initiators.is_empty());
        let mut later = Client::begin(&bench, &world, "iscsi-later", &uris.1);
        later.says("write -P 4 1M 64k", WROTE, 1).await;
        shared.served.readmit_nbd();
        by_nbd.says("write -P 3 0 64k", "failed", 2).await;
        let mut later_nbd = Client::begin(&bench, &world, "nbd-later", &uris.0);
        later_nbd.says("write -P 4 0 64k", WROTE, 1).await;
        assert_eq!(values(&shared.device).await, [4, 4]);
        drop((later, later_nbd, by_nbd));
        exports.close().await.unwrap();
    });
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("store~1"), "what was there is kept: {shown} {}", text(&folder));
}
