//! Messages that come back into databases under load, as those of a backup do.

use crate::simulated::{Drive, VISIT, describe, plan, run_on};
use protect::backup::{
    StepError,
    control_socket::{Delivery, DeliveryConnection},
};
use std::{collections::BTreeMap, time::Duration};
use workload::{
    database::{
        load::{
            mail_bytes::to_bytes,
            mail_record::{MailKey, RecordMaker, RecordVersion},
        },
        plan::{LoadPlan, profile::ServerProfile},
        results::RunResults,
        run::group::ControlPlace,
    },
    verdict::{RunVerdict, VerdictOutcome},
};
use world::{LocalFuture, World};

/// Fast enough for many deletions within the run.
const DISK: Drive = Drive { mean: Duration::from_millis(2), servers: 8 };
const DATABASE: &str = "priv1.edb";
/// That of the plan, as a run gives it to its first database.
const SEED: u64 = 11;
const MESSAGES: i64 = 60;

fn message(seed: u64, mailbox: i32, message: i64) -> Vec<u8> {
    let form = ServerProfile::load("exchange-2007").expect("it is there").record_form();
    to_bytes(&RecordMaker::new(seed, form).make(MailKey { mailbox, message }, RecordVersion::FIRST))
}

async fn open(world: &World, place: &ControlPlace) -> Result<DeliveryConnection, StepError> {
    DeliveryConnection::open(world, &*place.network, &place.at).await
}

/// Delivers the first messages of mailbox 0; counts the answers.
async fn deliver(connection: &mut DeliveryConnection) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for number in 0..MESSAGES {
        let answer =
            connection.deliver(DATABASE, &message(SEED, 0, number)).await.expect("it is one of its own");
        let word = match answer {
            Delivery::Added => "added",
            Delivery::Same => "same",
            Delivery::Other => "other",
            Delivery::Elsewhere => panic!("the database is here"),
        };
        *counts.entry(word).or_default() += 1;
    }
    counts
}

async fn expect_deliveries(world: World, place: ControlPlace) {
    // The load deletes, changes and adds for a while.
    let mut waited = 0;
    let mut connection = loop {
        match open(&world, &place).await {
            Ok(connection) => break connection,
            Err(_) => world.sleep(Duration::from_millis(200)).await,
        }
        waited += 1;
        assert!(waited < 3_000, "no socket");
    };
    world.sleep(Duration::from_secs(20)).await;
    let refused = |answer: Result<Delivery, StepError>, why: &str| {
        let reason = answer.unwrap_err().to_string();
        assert!(reason.contains(why), "{reason}");
    };
    refused(connection.deliver(DATABASE, &message(SEED + 1, 0, 0)).await, "another run made it");
    refused(connection.deliver(DATABASE, &message(SEED, 9_999_999, 0)).await, "has no mailbox 9999999");
    refused(connection.deliver(DATABASE, b"no message").await, "no message of this version");
    assert_eq!(connection.deliver("priv9.edb", &message(SEED, 0, 0)).await, Ok(Delivery::Elsewhere));
    assert!(connection.keep().await.is_ok(), "nothing was added, which is no failure");

    let taken_back = deliver(&mut connection).await;
    assert!(taken_back["added"] > 3 && taken_back["same"] > 3, "{taken_back:?}");
    // Again, within the transaction: all of them are there.
    assert!(!deliver(&mut connection).await.contains_key("added"));
    drop(connection);
    // It ended before they were kept.
    let mut connection = open(&world, &place).await.expect("the service goes on");
    let kept = deliver(&mut connection).await;
    assert!(kept["added"] >= taken_back["added"], "{kept:?} after {taken_back:?}");
    connection.keep().await.expect("they are stable");
    assert!(connection.keep().await.is_err(), "nothing was delivered since");
    drop(connection);
    let mut connection = open(&world, &place).await.expect("the service goes on");
    let there = deliver(&mut connection).await;
    assert!(there.get("added").copied().unwrap_or(0) * 4 < kept["added"], "{there:?} after {kept:?}");
}

fn run_visited() -> RunResults {
    VISIT.set(Some(|world, place| -> LocalFuture<()> { Box::pin(expect_deliveries(world, place)) }));
    let results = run_on(DISK, plan(LoadPlan::Mailboxes { count: 100, iops_each: 4.0 }, 60), None);
    VISIT.set(None);
    results
}

#[test]
fn messages_come_back_while_the_load_goes_on_and_finds_nothing_wrong() {
    let results = run_visited();
    let said = describe(&results);
    assert!(said.contains("messages of a backup were delivered"), "{said}");
    let verdict = RunVerdict::of(&results).expect("it was judged");
    assert_eq!(verdict.answer, VerdictOutcome::Pass, "{verdict:#?}\n{said}");
}
