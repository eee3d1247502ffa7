//! Page stamps: what they detect that no checksum can, what they must not report, and how a group with bad
//! stamps behaves.

mod sidecar;
mod while_open;
mod write_delay;

use crate::{
    model::{self, Mix, Rows},
    simulated::{DATABASE, SimulatedDrive, open, read_all, read_file},
};
use maildb::{
    Durability, Error, Instance, InstanceConfig, PageSize, PageStampMode, StampFinding,
    format::page_size::PageNumber, verify::StampsVerdict,
};
use std::{cell::RefCell, rc::Rc, sync::Arc};
use verify::in_world::{DatabaseReport, verify_database, verify_database_with_stamps};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, ExtentDirectory, Random, Stability, World,
    sim::{DriveOptions, FaultPlan, SimLimits},
};

const STAMPS: &str = "priv1.stamps";
const PAGE_SIZE: PageSize = PageSize::Kib4;
const MIX: Mix = Mix { body_bytes_max: 500, mailboxes: 10, delete_percent: 10.0 };

fn config() -> InstanceConfig {
    let cache = ByteCount(64 * PAGE_SIZE.bytes() as u64);
    InstanceConfig { torn_page_protection: false, ..model::config(PAGE_SIZE, cache) }
}

/// A drive with a directory, and the expected rows of its database.
struct Fixture {
    disk: SimulatedDrive,
    rows: Rc<RefCell<Rows>>,
}

impl Fixture {
    /// A closed group with some rows.
    fn new(seed: u64) -> Self {
        Self::on(seed, |_| {})
    }

    /// Like [`Fixture::new`], with other drive options.
    fn on(seed: u64, manners: impl FnOnce(&mut DriveOptions)) -> Self {
        let mut options = DriveOptions {
            atomic_unit: ByteCount(PAGE_SIZE.bytes() as u64),
            ..DriveOptions::new(ByteCount::mib(128))
        };
        manners(&mut options);
        let disk = SimulatedDrive::formatted(seed, options);
        let mut fixture = Self { disk, rows: Rc::default() };
        fixture.change(1500);
        fixture
    }

    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        main: impl FnOnce(World, Rc<dyn Directory>) -> F + 'static,
    ) -> T {
        self.disk.run(main)
    }

    /// Opens the group, changes rows, closes it.
    fn change(&mut self, count: usize) {
        let rows = Rc::clone(&self.rows);
        self.run(async move |world, directory| {
            let instance = open(&world, &directory, config()).await.expect("opened");
            change(&instance, &rows, count).await;
            instance.close().await.expect("closed");
        });
    }

    /// Opens the group, reads all rows, closes it.
    fn read_all(&mut self, config: InstanceConfig) -> Result<(), Error> {
        let rows = self.rows.borrow().clone();
        self.run(async move |world, directory| {
            let instance = open(&world, &directory, config).await?;
            let found = read_all(&instance.databases()[0]).await?;
            assert!(found == rows, "{} rows found, {} committed", found.len(), rows.len());
            instance.close().await
        })
    }

    fn pages(&mut self) -> Vec<Vec<u8>> {
        self.run(async |_, directory| pages(&directory).await)
    }

    fn put(&mut self, page: usize, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.run(async move |_, directory| put(&directory, page, &bytes).await);
    }

    /// Verdicts by checksums alone, and with stamps.
    fn verify(&mut self) -> (DatabaseReport, DatabaseReport) {
        self.run(async |_, directory| {
            let file = directory.open(DATABASE).await.expect("there");
            let plain = verify_database(file, DATABASE, &mut |_, _| {}).await.expect("readable");
            let stamped = verify_database_with_stamps(&directory, DATABASE, &mut |_, _| {}).await;
            (plain, stamped.expect("readable"))
        })
    }
}

async fn change(instance: &Instance, rows: &Rc<RefCell<Rows>>, count: usize) {
    let table = model::mail_table(&instance.databases()[0]).await;
    let (mut session, mut now) = (instance.session(), rows.take());
    let mut random = Random::new(now.len() as u64, "changes");
    model::change_at_random(&mut session, &table, &mut now, &mut random, count, MIX).await;
    session.commit(Durability::Stable).await.expect("committed");
    *rows.borrow_mut() = now;
}

/// All pages of the file, including the two header pages: page n is at index n + 1.
async fn pages(directory: &Rc<dyn Directory>) -> Vec<Vec<u8>> {
    let bytes = read_file(directory, DATABASE).await;
    bytes.chunks(PAGE_SIZE.bytes()).map(<[u8]>::to_vec).collect()
}

async fn put(directory: &Rc<dyn Directory>, place: usize, bytes: &[u8]) {
    let file = directory.open(DATABASE).await.expect("there");
    let at = ByteOffset((place * PAGE_SIZE.bytes()) as u64);
    file.write(at, vec![Arc::new(Buffer::copy_of(bytes))], Stability::Stable).await.expect("writable");
}

/// Indexes of pages that were written before and have changed since, without the headers.
fn changed(before: &[Vec<u8>], after: &[Vec<u8>]) -> Vec<usize> {
    let differs =
        |&place: &usize| before[place] != after[place] && before[place].iter().any(|&byte| byte != 0);
    (2..before.len()).filter(differs).collect()
}

fn page_at(place: usize) -> PageNumber {
    PageNumber(place as u32 - 1)
}

#[track_caller]
fn assert_not_as_written(outcome: Result<(), Error>, place: usize, is_it: impl Fn(&StampFinding) -> bool) {
    match outcome {
        Err(Error::NotAsWritten { page, finding, .. }) if page == page_at(place) && is_it(&finding) => {}
        other => panic!("page {}: {other:?}", page_at(place)),
    }
}

#[test]
fn pages_match_their_stamps_and_the_verifier_agrees() {
    let mut fixture = Fixture::new(1);
    fixture.read_all(config()).expect("whole");
    let (plain, stamped) = fixture.verify();
    assert!(plain.is_clean() && stamped.is_clean(), "{:?}", stamped.damaged);
    let StampsVerdict::Checked { pages_known } = stamped.stamps else { panic!("{:?}", stamped.stamps) };
    assert_eq!(plain.stamps, StampsVerdict::NotKept);
    assert!(pages_known >= stamped.pages_good / 2, "{pages_known} of {} pages are known", stamped.pages_good);
}

#[test]
fn a_lost_write_is_detected_after_reopening() {
    let mut fixture = Fixture::new(2);
    let before = fixture.pages();
    fixture.change(100);
    let after = fixture.pages();
    let places = changed(&before, &after);
    let mut found = 0;
    for &place in &places {
        fixture.put(place, &before[place]);
        let (plain, stamped) = fixture.verify();
        assert!(plain.is_clean(), "an old page in its place is good to its checksum");
        assert_eq!(stamped.damaged.iter().map(|damage| damage.page).collect::<Vec<_>>(), [page_at(place)]);
        assert!(stamped.damaged[0].problem.contains("a write was lost"), "{:?}", stamped.damaged);
        match fixture.read_all(config()) {
            // A page of a space tree that was not read.
            Ok(()) => {}
            refused => {
                let is_it = |finding: &StampFinding| matches!(finding, StampFinding::LostWrite { .. });
                assert_not_as_written(refused, place, is_it);
                found += 1;
            }
        }
        // Detection changed nothing: with the right page in place the database is whole.
        fixture.put(place, &after[place]);
    }
    fixture.read_all(config()).expect("whole again");
    assert!(found > 5, "{found} of {places:?}");
}

#[test]
fn a_misdirected_write_is_detected_at_both_pages() {
    let mut fixture = Fixture::new(3);
    let before = fixture.pages();
    fixture.change(100);
    let after = fixture.pages();
    let places = changed(&before, &after);
    let (meant, hit) = (places[0], places[places.len() - 1]);
    fixture.put(meant, &before[meant]);
    fixture.put(hit, &after[meant]);
    let (plain, stamped) = fixture.verify();
    assert_eq!(plain.damaged.len(), 1, "the page in a wrong place carries another number");
    let found: Vec<_> = stamped.damaged.iter().map(|damage| (damage.page, damage.problem.as_str())).collect();
    let number = page_at(meant);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].0 == number && found[0].1.contains("a write was lost"), "{found:?}");
    let astray = format!("it is page {number}, written to or read from the wrong place");
    assert_eq!(found[1], (page_at(hit), astray.as_str()));
}

/// The checksums are linear: four bits at the corners of a rectangle cancel out. So a write torn between the
/// page's header, which holds the checksums, and such a change passes.
#[test]
fn a_torn_write_that_passes_checksums_is_detected() {
    let mut fixture = Fixture::new(4);
    let body: Vec<u8> = (0..900_u32).map(|at| (at * 31 % 251) as u8).collect();
    let mut changed_body = body.clone();
    for corner in [400, 404] {
        changed_body[corner] ^= 3;
    }
    let key = (5000, 1);
    let write = |fixture: &mut Fixture, body: Vec<u8>| {
        let rows = Rc::clone(&fixture.rows);
        fixture.run(async move |world, directory| {
            let instance = open(&world, &directory, config()).await.expect("opened");
            let table = model::mail_table(&instance.databases()[0]).await;
            let mut session = instance.session();
            let row = ("a subject".to_owned(), body);
            let values = model::row_values(key, &row);
            let before = rows.borrow_mut().insert(key, row);
            match before {
                None => session.insert(&table, &values).await.expect("inserted"),
                Some(_) => session.replace(&table, &model::key_values(key), &values).await.expect("replaced"),
            }
            session.commit(Durability::Stable).await.expect("committed");
            drop(session);
            instance.close().await.expect("closed");
        });
    };
    write(&mut fixture, body.clone());
    let before = fixture.pages();
    write(&mut fixture, changed_body);
    let after = fixture.pages();
    let holds = |page: &Vec<u8>| page.windows(300).any(|bytes| bytes == &body[..300]);
    let place = (2..after.len()).find(|&place| holds(&after[place])).expect("the row is somewhere");
    let differs = |at: &usize| before[place][*at] != after[place][*at];
    let sector = (512..4096).find(differs).expect("the row has changed") / 512 * 512;
    let mixed = [&after[place][..sector], &before[place][sector..]].concat();
    assert!(mixed != before[place] && mixed != after[place]);
    fixture.put(place, &mixed);
    let (plain, stamped) = fixture.verify();
    assert!(plain.is_clean(), "this is the point: {:?}", plain.damaged);
    assert_eq!(stamped.damaged.iter().map(|damage| damage.page).collect::<Vec<_>>(), [page_at(place)]);
    let is_it = |finding: &StampFinding| matches!(finding, StampFinding::Mixed { .. });
    assert_not_as_written(fixture.read_all(config()), place, is_it);
}

#[test]
fn a_running_group_refuses_an_old_page_and_its_background_scan_reports_it() {
    let mut fixture = Fixture::new(5);
    let rows = Rc::clone(&fixture.rows);
    fixture.run(async move |world, directory| {
        let before = pages(&directory).await;
        let instance = open(&world, &directory, config()).await.expect("opened");
        change(&instance, &rows, 200).await;
        world.sleep(std::time::Duration::from_secs(2)).await;
        instance.checkpoint().await.expect("taken");
        // Pages no longer cached have been written.
        let after = pages(&directory).await;
        let places = changed(&before, &after);
        assert!(places.len() > 20, "{places:?}");
        for &place in &places {
            put(&directory, place, &before[place]).await;
        }
        let error = read_all(&instance.databases()[0]).await.expect_err("some of them must be read");
        assert!(matches!(error, Error::NotAsWritten { .. }), "{error:?}");
        let outcome = instance.databases()[0].scan(PageNumber(1), u32::MAX).await.expect("readable");
        let mut damaged: Vec<_> = outcome.damaged.iter().map(|(page, _)| page.0 as usize + 1).collect();
        damaged.sort_unstable();
        assert_eq!(damaged, places);
    });
}

#[test]
fn a_stale_read_gives_an_error_and_the_page_is_good_when_read_again() {
    let mut fixture = Fixture::new(6);
    let (rows, drive) = (Rc::clone(&fixture.rows), Rc::clone(&fixture.disk.drive));
    fixture.run(async move |world, directory| {
        let stale = |percent| FaultPlan { stale_read_percent: percent, ..FaultPlan::none() };
        // From now on the drive remembers overwritten data.
        drive.set_faults(stale(1e-9));
        let instance = open(&world, &directory, config()).await.expect("opened");
        change(&instance, &rows, 400).await;
        world.sleep(std::time::Duration::from_secs(2)).await;
        let mut refused = 0;
        for _ in 0..10 {
            drive.set_faults(stale(50.0));
            match read_all(&instance.databases()[0]).await {
                Ok(found) => assert!(found == *rows.borrow()),
                Err(error) => {
                    let is_it = matches!(error, Error::NotAsWritten { .. } | Error::PageDamaged { .. });
                    assert!(is_it, "{error:?}");
                    refused += 1;
                }
            }
            drive.set_faults(FaultPlan::none());
            assert!(read_all(&instance.databases()[0]).await.expect("readable") == *rows.borrow());
        }
        assert!(refused > 0, "no read was stale");
    });
}

/// Any page may be old after a power cut, and that is not a lost write.
#[test]
fn a_crash_in_flight_is_not_reported() {
    let mut redone = 0;
    let seeds = if std::env::var_os("SPINDLE_FULL").is_some() { 60 } else { 20 };
    for seed in 0..seeds {
        let mut fixture = Fixture::new(100 + seed);
        let mut random = Random::new(seed, "cuts");
        for _ in 0..3 {
            let config = InstanceConfig {
                checkpoint_depth: ByteCount::kib(16 << random.below(6)),
                coalesce: ByteCount::kib(4 << random.below(5)),
                writes_outstanding_max: 1 << random.below(5),
                ..config()
            };
            let (rows, drive) =
                (Rc::clone(&fixture.rows), Rc::clone(&fixture.disk.drive) as Rc<dyn BlockDevice>);
            let (settings, attempt) = (config.clone(), random.next_u64());
            let limits = SimLimits { polls: Some(200 + random.below(20_000)), ..SimLimits::generous() };
            let _ = fixture.disk.simulation.run(limits, |world| async move {
                let directory: Rc<dyn Directory> =
                    Rc::new(ExtentDirectory::open(drive).await.expect("there"));
                let instance = open(&world, &directory, settings).await.expect("opened");
                let table = model::mail_table(&instance.databases()[0]).await;
                let (mut session, mut random) = (instance.session(), Random::new(attempt, "rows"));
                loop {
                    // Only replaced: acknowledged rows are in `rows`, others may have either value.
                    let key =
                        rows.borrow().keys().nth(random.below(rows.borrow().len() as u64) as usize).copied();
                    let key = key.expect("there are rows");
                    let row = model::random_row(&mut random, 500);
                    let values = model::row_values(key, &row);
                    rows.borrow_mut().insert(key, row);
                    session.replace(&table, &model::key_values(key), &values).await.expect("replaced");
                    session.commit(Durability::Lazy).await.expect("committed");
                    world.sleep(std::time::Duration::from_millis(random.below(30))).await;
                }
            });
            fixture.disk.simulation.cut_power();
            let (seed_again, rows) = (seed, Rc::clone(&fixture.rows));
            redone += fixture.run(async move |world, directory| {
                let instance = open(&world, &directory, config).await;
                let instance = instance.unwrap_or_else(|error| panic!("seed {seed_again}: {error}"));
                assert_eq!(instance.recovery().stamps_begun, 0, "seed {seed_again}");
                let found = read_all(&instance.databases()[0]).await;
                let found = found.unwrap_or_else(|error| panic!("seed {seed_again}: {error}"));
                assert!(found.keys().eq(rows.borrow().keys()), "seed {seed_again}");
                *rows.borrow_mut() = found;
                let redone = instance.recovery().pages_changed;
                instance.close().await.unwrap_or_else(|error| panic!("seed {seed_again}: {error}"));
                redone
            });
            let (_, stamped) = fixture.verify();
            assert!(stamped.is_clean(), "seed {seed}: {:?}, {:?}", stamped.stamps, stamped.damaged);
        }
    }
    assert!(redone > 1000, "{redone} pages redone: the cuts came too late");
}
