//! Drives that are added and retired over the API of a server that is killed.

use crate::{
    exported::{is_here, judge},
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, is_full_run},
};
use control::web::{
    NewDriveBody,
    client::{ApiClient, ApiReply},
    health_rows::{DriveRow, DriveState},
    rows::PoolRow,
};
use std::{fs, rc::Rc, time::Duration};
use world::{
    Address, Random, World,
    real::{self, Sockets},
    with_deadline,
};

const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = 'none'
[[group]]
name = 'mail'
drives = 3
drive_gb = 0.11
[[volume]]
name = 'store'
group = 'mail'
gb = 0.015625
[[nbd]]
name = 'store'
volume = 'store'
";
const KILLS: u64 = 12;

/// A caller of the API of the server in a bench.
struct Caller {
    world: World,
    client: ApiClient,
    pool: String,
}

impl Caller {
    async fn new(world: &World, bench: &Bench) -> Self {
        let socket = fs::canonicalize(bench.path("state")).unwrap().join("spindle.sock");
        let client = ApiClient::new(Rc::new(Sockets), Address::Unix(socket), None);
        let pools: Vec<PoolRow> = client.get("/v1/pools").await.unwrap();
        let pool = format!("/v1/pools/{}/drives", pools[0].id.as_ref().expect("it is open"));
        Self { world: world.clone(), client, pool }
    }

    async fn drives(&self) -> Vec<DriveRow> {
        self.client.get(&self.pool).await.unwrap()
    }

    /// Sends a change; `None` if there is no answer.
    async fn change(&self, (drive, key): &(Option<String>, String)) -> Option<ApiReply> {
        let body = NewDriveBody { size_bytes: Some(120 << 20), ..Default::default() };
        let key = [("idempotency-key", key.as_str())];
        let sent = match drive {
            Some(drive) => {
                let path = format!("{}/{drive}", self.pool);
                self.client.send("DELETE".parse().unwrap(), &path, None, &key).await
            }
            None => {
                let body = Some(serde_json::to_string(&body).unwrap());
                self.client.send("POST".parse().unwrap(), &self.pool, body, &key).await
            }
        };
        sent.ok()
    }

    /// Waits until the pool has so many drives, all of them in use.
    async fn has_drives(&self, count: usize) -> Vec<DriveRow> {
        for _ in 0..1_000 {
            let rows = self.drives().await;
            if rows.len() == count && rows.iter().all(|row| row.state == DriveState::InUse) {
                return rows;
            }
            self.world.sleep(Duration::from_millis(20)).await;
        }
        panic!("not {count} drives: {:#?}", self.drives().await);
    }
}

#[test]
fn a_drive_is_there_or_not_after_a_kill_and_the_same_request_ends_well() {
    if !is_full_run("drives joined and left beside kills") {
        return;
    }
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let mut random = Random::new(11, "kills");
    let mut unanswered = 0;
    for kill in 0..KILLS {
        let served = Served::begin(&bench);
        if kill == 0 {
            judge("qemu-io", &["-f", "raw", "-c", "write -P 5 0 12M", "-c", "flush", served.uri("/store")]);
        }
        let wait = Duration::from_micros(random.below(60_000));
        let mut change = (None, format!("key-{kill}"));
        real::run(0, Default::default(), async |world: World| {
            let caller = Caller::new(&world, &bench).await;
            let rows = caller.drives().await;
            if kill % 2 == 1 {
                assert_eq!(rows.len(), 4, "{rows:#?}");
                change.0 = rows[random.below(4) as usize].id.clone();
            }
            let reply = with_deadline(world.sleep(wait), caller.change(&change)).await.flatten();
            unanswered += u64::from(reply.is_none());
        });
        // SIGKILL.
        drop(served);
        let served = Served::begin(&bench);
        real::run(0, Default::default(), async |world: World| {
            let caller = Caller::new(&world, &bench).await;
            let rows = caller.drives().await;
            assert!(
                (3..=4).contains(&rows.iter().filter(|row| row.size_bytes.is_some()).count()),
                "{rows:#?}"
            );
            let reply = caller.change(&change).await.expect("it answers");
            let status = if change.0.is_some() { 202 } else { 201 };
            assert_eq!(reply.status, status, "{change:?}: {reply:?}; it had {rows:#?}");
            let now = caller.has_drives(if change.0.is_some() { 3 } else { 4 }).await;
            assert!(now.iter().all(|row| row.id != change.0 || row.id.is_none()), "{now:#?}");
        });
        if kill % 4 == 3 {
            served.end();
        }
    }
    assert!(unanswered > 0, "no request was under way");
    let served = Served::begin(&bench);
    let said = judge("qemu-io", &["-r", "-f", "raw", "-c", "read -P 5 0 12M", served.uri("/store")]);
    assert!(!said.contains("failed"), "{said}");
    served.end();
    done(&bench.run(&["pool", "scrub", "state/pools/mail"]));
}
