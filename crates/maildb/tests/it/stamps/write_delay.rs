//! Writes that wait for their stamps' log record must not delay writes that can proceed.

use super::*;
use maildb::Statistics;
use std::time::Duration;
use world::sim::ServiceTime;

const SESSIONS: u64 = 8;
const REPLACED_EACH: u64 = 600;

/// Replaces rows at random with lazy commits; returns the time taken and the counters.
fn replace_rows(page_stamps: PageStampMode) -> (Duration, Statistics) {
    let spindle = ServiceTime {
        least: Duration::from_millis(10),
        mean_above: Duration::from_millis(5),
        per_mib: Duration::from_millis(10),
    };
    let mut fixture = Fixture::on(7, |drive| (drive.read, drive.write) = (spindle, spindle));
    fixture.change(20_000);
    let keys: Rc<Vec<_>> = Rc::new(fixture.rows.borrow().keys().copied().collect());
    let cache = ByteCount(512 * PAGE_SIZE.bytes() as u64);
    let settings = InstanceConfig { cache, writes_outstanding_max: 8, page_stamps, ..config() };
    fixture.run(async move |world, directory| {
        let instance = Rc::new(open(&world, &directory, settings).await.expect("opened"));
        let table = model::mail_table(&instance.databases()[0]).await;
        let began = world.now();
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let (mut session, table, keys) = (instance.session(), table.clone(), Rc::clone(&keys));
                let mut random = Random::new(number, "replaced rows");
                world.spawn("session", async move {
                    for _ in 0..REPLACED_EACH {
                        let key = keys[random.below(keys.len() as u64) as usize];
                        let values = model::row_values(key, &model::random_row(&mut random, 500));
                        match session.replace(&table, &model::key_values(key), &values).await {
                            Ok(()) => session.commit(Durability::Lazy).await.expect("committed"),
                            Err(_) => session.rollback().await.expect("rolled back"),
                        };
                    }
                })
            })
            .collect();
        for session in sessions {
            session.await;
        }
        let (took, statistics) = (world.now().since(began), instance.statistics());
        Rc::into_inner(instance).expect("all sessions have ended").close().await.expect("closed");
        (took, statistics)
    })
}

#[test]
fn writes_that_wait_for_stamps_neither_stall_the_cleaner_nor_trigger_log_writes() {
    let (plain, without) = replace_rows(PageStampMode::Off);
    let (stamped, with) = replace_rows(PageStampMode::Durable);
    assert!(with.page_writes > 200, "the cache is too small for the rows: {}", with.page_writes);
    let slower = stamped.as_secs_f64() / plain.as_secs_f64();
    assert!(slower < 1.3, "{plain:?} without stamps {without:?}, {stamped:?} with them {with:?}");
    assert!(with.log_writes < 2 * without.log_writes, "{} and {}", without.log_writes, with.log_writes);
}

#[test]
fn stamps_in_memory_cost_neither_time_at_the_drive_nor_log() {
    let (plain, without) = replace_rows(PageStampMode::Off);
    let (stamped, with) = replace_rows(PageStampMode::WhileOpen);
    let slower = stamped.as_secs_f64() / plain.as_secs_f64();
    assert!(slower < 1.03, "{plain:?} without stamps {without:?}, {stamped:?} with them {with:?}");
    let longer = with.log_bytes as f64 / without.log_bytes as f64;
    assert!(longer < 1.001, "{} bytes of log, and {}", without.log_bytes, with.log_bytes);
}
