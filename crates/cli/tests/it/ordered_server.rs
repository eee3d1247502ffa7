//! A server of "pool/store" in a process of its own, for what no verb does beside hosts yet: a test starts itself again, and
//! is the server there. It takes orders from standard input.

use crate::{own_server::OwnServer, spindle::Bench};
use array::{
    format::{SnapshotId, VolumeId},
    pool::{Pool, RollbackGoal},
};
use std::{
    env,
    io::{BufRead, BufReader, Write, stdin},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{TryRecvError, channel},
    thread,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteOffset, World,
    real::{self, RealOptions},
};

/// Folder of the pool, to the process that is to be the server.
const SERVER: &str = "SPINDLE_TEST_SERVER";
const SERVER_PORTAL: &str = "SPINDLE_TEST_PORTAL";
/// Before each answer, as the test harness prints lines of its own.
const ANSWER: &str = "answer: ";
const COMPARED_AT_ONCE: usize = 4 << 20;

/// The server as the test sees it; killed when dropped.
pub struct OrderedServer {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl OrderedServer {
    /// Starts `program`, which is this one, with a test that begins with [`serve_if_it_is_one`].
    pub fn begin(mut program: Command, test: &str, bench: &Bench, portal: &str) -> Self {
        program.args(["--exact", test, "--nocapture"]).env(SERVER, bench.path("")).env(SERVER_PORTAL, portal);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, answers };
        assert_eq!(server.answer(), "serving");
        server
    }

    #[track_caller]
    fn answer(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with(ANSWER) {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the server has ended");
        }
        line[ANSWER.len()..].trim_end().to_owned()
    }

    /// Gives an order.
    #[track_caller]
    pub fn order(&mut self, order: &str) -> String {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{order}").unwrap();
        stdin.flush().unwrap();
        self.answer()
    }

    /// Gives an order, and expects that answer.
    #[track_caller]
    pub fn must(&mut self, order: &str, expected: &str) {
        assert_eq!(self.order(order), expected, "{order}");
    }
}

impl Drop for OrderedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is the server until it is to close, if this process was started for that. False if not.
pub fn serve_if_it_is_one() -> bool {
    let folder = env::var_os(SERVER).map(PathBuf::from);
    folder.iter().for_each(|folder| serve(folder, &env::var(SERVER_PORTAL).unwrap()));
    folder.is_some()
}

fn serve(folder: &Path, portal: &str) {
    let (tell, orders) = channel();
    thread::spawn(move || stdin().lines().map_while(Result::ok).try_for_each(|order| tell.send(order)));
    real::run(7, RealOptions::default(), async |world: World| {
        let server = OwnServer::begin(&world, folder, ("pool", "store"), portal).await;
        let pool = server.exports.pool(&folder.join("pool")).unwrap().clone();
        println!("{ANSWER}serving");
        loop {
            let order = match orders.try_recv() {
                Ok(order) => order,
                Err(TryRecvError::Empty) => {
                    world.sleep(Duration::from_millis(5)).await;
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
            };
            let answer = match order.as_str() {
                "snapshot" => {
                    pool.snapshot(&["store"], "monday", SnapshotId([9; 16])).await.unwrap();
                    "done".to_owned()
                }
                "roll back" => {
                    let left = VolumeId([pool.volumes().len() as u8; 16]);
                    let goal = RollbackGoal::Snapshot("monday".into());
                    let served = &server.shared().served;
                    let done = served.roll_back(&pool, ("store", goal), left).await.unwrap();
                    let withheld = done.withheld.initiators.join(" ");
                    format!("{}, withheld from {withheld}; {}", done.left_name, compare(&server, &pool).await)
                }
                "compare" => compare(&server, &pool).await,
                "withheld" => server.shared().served.withheld_from().initiators.join(" "),
                "uris" => format!("{} {}", server.nbd_uri, server.iscsi_uri),
                "close" => break,
                other => panic!("{other:?}"),
            };
            println!("{ANSWER}{answer}");
        }
        drop(pool);
        server.exports.close().await.unwrap();
        println!("{ANSWER}closed");
    });
}

/// The exported volume beside the snapshot, byte for byte.
async fn compare(server: &OwnServer, pool: &Pool) -> String {
    let (store, monday) = (&server.shared().device, pool.snapshot_device("store", "monday").unwrap());
    for at in (0..store.geometry().size.0).step_by(COMPARED_AT_ONCE) {
        let buffer = || vec![Buffer::zeroed(COMPARED_AT_ONCE)];
        let now = store.read(ByteOffset(at), buffer()).await.unwrap();
        let then = monday.read(ByteOffset(at), buffer()).await.unwrap();
        if let Some(within) = now[0].iter().zip(&then[0][..]).position(|(now, then)| now != then) {
            return format!("byte {} differs", at + within as u64);
        }
    }
    "same".to_owned()
}
