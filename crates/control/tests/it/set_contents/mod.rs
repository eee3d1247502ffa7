//! Contents of backups, in simulated time: an application writes to volumes of two pools, is frozen, cut, taken back to
//! backups that may go meanwhile, and everything crashes between any two awaits.
//!
//! After each crash: what was answered is there; each application backup has the contents at its freeze; every head that a
//! restore left is there; a restore that was begun goes on, or is undone. Verifications that are due, or that a person orders, read
//! points which nobody deletes meanwhile; a backup is proven by one that read everything, and by no other. Each restore that
//! ended is in the catalogue, with its end.

mod mail_service;
mod two_pools;
mod verifier;

use crate::seeds::Seeds;
use array::{format::VolumeId, pool::RollbackGoal, volume::VolumeDevice};
use mail_service::{Contents, Ledger, MailService, ServiceFreezing, VOLUMES, contents_of};
use protect::{
    backup::BackupPolicy,
    backup_schedule::{FreezeLimit, ScheduleSet},
    catalogue::{BackupStage, CatalogueScope, LabelWord, file::read},
    planted::{BackupBug, with_backup_bug},
    planted_keeping::{KeepingBug, with_keeping_bug},
    retention::{BackupProof, KeepPolicy, KeepSettings},
    set_keeper::{
        MadeBackup, PersonOrder, RestoreResult, SetKeeper, SetOpening, SetSettings, SetVolume,
        VerificationVerdict,
    },
    verification::{VerificationPolicy, VerificationSettings},
};
use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};
use two_pools::{DistantPools, OpenPools, PoolDrives, make_pools, open_pools, snapshot_of};
use verifier::{VerifiedBackup, Verifier};
use world::{
    ByteCount, Random, World,
    sim::{DriveOptions, SimLimits, SimStateFile, Simulation},
};

const DRIVE_BYTES: u64 = 65 << 20;

/// A restore that was begun: of the point of this name, with the identities of the heads that it leaves.
#[derive(Clone, Debug)]
struct BegunRestore {
    point: String,
    left: [VolumeId; 2],
    goal: Contents,
}

/// Everything that outlives a crash.
struct Site {
    drives: PoolDrives,
    disk: SimStateFile,
    ledger: Rc<Ledger>,
    restore: RefCell<Option<BegunRestore>>,
    /// Heads that restores left, with their contents.
    left: RefCell<Vec<([VolumeId; 2], Contents)>>,
    next_left: Cell<u8>,
    /// Restores that ended, by the names of their points, and whether all volumes are back: to be noted.
    ended: RefCell<Vec<(String, bool)>>,
    /// Those that were noted.
    noted: Cell<usize>,
    /// Verifications that were followed, by their verdicts: proven, damaged, unfinished.
    verified: Cell<[u64; 3]>,
    compared: Cell<u64>,
    restored: Cell<u64>,
}

struct LifeFaults {
    losing: f64,
    shaky: f64,
    is_full: bool,
}

fn settings() -> SetSettings {
    let volume = |(pool, volume): (&str, &str)| SetVolume {
        pool: pool.to_owned(),
        volume: volume.to_owned(),
        is_log: false,
    };
    let keep = KeepSettings { at_least: Some(2), ..KeepSettings::default() };
    let verification = VerificationSettings { level: "deep".to_owned(), ..VerificationSettings::default() };
    SetSettings {
        name: "mail".to_owned(),
        volumes: VOLUMES.map(volume).to_vec(),
        schedules: ScheduleSet::parse(&["4x15min"], "UTC").expect("a set"),
        keep: KeepPolicy::new(&keep).expect("rules"),
        freeze_limit: FreezeLimit { has_freeze: true, every: Duration::from_secs(15), has_logs: false },
        policy: BackupPolicy::default(),
        verification: Some(VerificationPolicy::new(&verification).expect("a policy")),
        drill: None,
        vault: None,
    }
}

impl Site {
    fn keeper(
        &self,
        world: &World,
        pools: &OpenPools,
        service: &Rc<MailService>,
        (faults, verifier): (&LifeFaults, &Rc<Verifier>),
    ) -> SetKeeper {
        let pools = DistantPools {
            world: world.clone(),
            pools: pools.clone(),
            random: Rc::new(RefCell::new(world.random("pools"))),
            losing: faults.losing,
            is_full: faults.is_full,
            verifier: Rc::clone(verifier),
        };
        let opening = SetOpening {
            settings: settings(),
            pools: Rc::new(pools),
            freezing: Rc::new(ServiceFreezing(Rc::clone(service))),
            generator: "spindle test".to_owned(),
            runner: "a test".to_owned(),
        };
        SetKeeper::open(world, Box::new(self.disk.open()), opening).expect("an intact catalogue")
    }

    async fn live(self: Rc<Self>, world: World, faults: LifeFaults, looks: u64) {
        let pools = open_pools(&world, &self.drives).await;
        self.restore_on(&world, &pools).await;
        self.expect_heads(&pools).await;
        let service = MailService::new(&world, &self.ledger, &pools, faults.shaky);
        drop(world.spawn("mail service", Rc::clone(&service).run()));
        let verifier = Rc::new(Verifier::default());
        let mut keeper = self.keeper(&world, &pools, &service, (&faults, &verifier));
        let mut random = world.random("people");
        for _ in 0..looks {
            let before = proven(&keeper);
            let used = in_use(&keeper, &verifier);
            let look = keeper.look().await.expect("a catalogue that can be written");
            for number in used.iter().filter(|number| in_use(&keeper, &verifier).contains(number)) {
                let stage = keeper.catalogue().row(*number).map(|row| row.stage);
                assert_eq!(stage, Some(BackupStage::Cut), "backup {number} is verified, and goes");
            }
            let ordered = if random.percent(60.0) { keeper.back_up("anna", &[]).await.ok() } else { None };
            let is_without = |made: &MadeBackup| made.label.is_none();
            let is_failed = match (&look.made, &ordered) {
                (Some(one), None) | (None, Some(one)) => is_without(one),
                (Some(one), Some(other)) => is_without(one) && is_without(other),
                (None, None) => false,
            };
            if is_failed && !faults.is_full {
                assert_eq!(proven(&keeper), before, "a failed round leaves as many proven ones");
            }
            self.expect_contents(&keeper, &pools).await;
            self.use_backups(&mut keeper, &mut random).await;
            self.note_verdicts(&mut keeper, &verifier).await;
            self.note_restores(&mut keeper).await;
            if !verifier.is_busy() && random.percent(70.0) {
                self.begin_verification(
                    &keeper,
                    &verifier,
                    (&world, &pools),
                    10.0 + faults.losing,
                    &mut random,
                );
            }
            if random.percent(15.0) && !service.is_stopped() {
                let restoring = Rc::clone(&self).restore(
                    world.clone(),
                    pools.clone(),
                    Rc::clone(&service),
                    random.below(8),
                );
                drop(world.spawn("restore", restoring));
            }
            world.sleep(look.wait.min(Duration::from_secs(30))).await;
        }
    }

    async fn use_backups(&self, keeper: &mut SetKeeper, random: &mut Random) {
        let Some(newest) = keeper.view().backups.last().map(|backup| backup.number) else { return };
        let oldest = keeper.view().backups[0].number;
        let (number, order) = match random.below(6) {
            0 => (oldest, PersonOrder::Delete { may_be_last: false }),
            1 => (newest, PersonOrder::Delete { may_be_last: false }),
            _ => return,
        };
        // One that is gone, held, in use or the last stays as it is.
        drop(keeper.follow(number, &order, "anna").await);
    }

    /// Begins the verification that is due, or one of the oldest backup by hand.
    fn begin_verification(
        &self,
        keeper: &SetKeeper,
        verifier: &Rc<Verifier>,
        (world, pools): (&World, &OpenPools),
        losing: f64,
        random: &mut Random,
    ) {
        let due = keeper.verification_due().map(|due| due.number);
        let by_hand = keeper.view().backups.first().map(|backup| backup.number);
        let Some(number) = due.filter(|_| random.percent(70.0)).or(by_hand) else { return };
        let row = keeper.catalogue().row(number).expect("it is live");
        let is_application = row.label == Some(LabelWord::Application);
        let frozen = self.ledger.frozen.borrow().get(&row.start.name).copied().filter(|_| is_application);
        let backup = VerifiedBackup { number, points: row.points.clone(), frozen };
        let verifying = Rc::clone(verifier).verify(world.clone(), pools.clone(), backup, losing);
        drop(world.spawn("verification", verifying));
    }

    /// Notes the verdicts that have come. One that is none changes nothing.
    async fn note_verdicts(&self, keeper: &mut SetKeeper, verifier: &Verifier) {
        let results = std::mem::take(&mut *verifier.results.borrow_mut());
        for (number, result) in results {
            let proofs = |keeper: &SetKeeper| {
                keeper.catalogue().row(number).map(|row| (row.proof(), row.verifications.len()))
            };
            let (verdict, before) = (result.verdict, proofs(keeper));
            let followed = keeper.follow(number, &PersonOrder::NoteVerification(result), "spindle").await;
            if followed.is_err() {
                // It went meanwhile, or is going.
                assert_eq!(proofs(keeper), before);
                continue;
            }
            let (before, after) = (before.expect("it is live"), proofs(keeper).expect("it is live"));
            let (index, expected) = match verdict {
                VerificationVerdict::Proven => (0, (BackupProof::Proven, before.1 + 1)),
                VerificationVerdict::Damaged => (1, (BackupProof::Damaged, before.1 + 1)),
                VerificationVerdict::Unfinished => (2, before),
            };
            assert_eq!(after, expected, "after {verdict:?}");
            let mut verified = self.verified.get();
            verified[index] += 1;
            self.verified.set(verified);
        }
    }

    /// Notes the restores that have ended, as the command does. A backup that is gone has none.
    async fn note_restores(&self, keeper: &mut SetKeeper) {
        let ended = std::mem::take(&mut *self.ended.borrow_mut());
        for (name, is_good) in ended {
            let found = keeper.view().backups.into_iter().find(|backup| backup.name == name);
            let Some(backup) = found else { continue };
            let problems = if is_good { Vec::new() } else { vec!["log: its backup is gone".to_owned()] };
            let (what, to) = ("the set".to_owned(), "in place".to_owned());
            let order = PersonOrder::NoteRestore(RestoreResult { what, to, is_good, problems });
            if keeper.follow(backup.number, &order, "anna").await.is_ok() {
                self.noted.set(self.noted.get() + 1);
            }
        }
    }

    /// The restores that the catalogue has are those that were noted.
    fn expect_restores(&self) {
        let read = read(&self.disk.open(), CatalogueScope::All).expect("intact");
        let restores = read.map(|read| read.catalogue.restores().len()).unwrap_or_default();
        // A crash may come between the line and the answer.
        assert!(
            (self.noted.get()..=self.noted.get() + 1).contains(&restores),
            "{restores} restores in the catalogue, {} noted",
            self.noted.get()
        );
        self.noted.set(restores);
    }

    /// Takes the application back to one of its backups, which may go meanwhile.
    async fn restore(self: Rc<Self>, world: World, pools: OpenPools, service: Rc<MailService>, which: u64) {
        service.stop().await;
        let known = pools[VOLUMES[0].0].snapshots(VOLUMES[0].1).expect("it is there");
        let frozen = self.ledger.frozen.borrow().clone();
        let usable: Vec<_> = known.iter().filter(|one| frozen.contains_key(&one.name)).collect();
        // A commit that failed is not to be ended after a restore.
        if let (Some(one), None) = (usable.get(which as usize % usable.len().max(1)), self.ledger.begun.get())
        {
            let number = self.next_left.replace(self.next_left.get().wrapping_add(2));
            let left = [VolumeId([100 + number % 100; 16]), VolumeId([101 + number % 100; 16])];
            let is_new = number < 90;
            if is_new && self.is_whole(&pools, &one.name) {
                let begun = BegunRestore { point: one.name.clone(), left, goal: frozen[&one.name] };
                *self.restore.borrow_mut() = Some(begun);
                world.sleep(Duration::from_millis(which * 5)).await;
                self.restore_on(&world, &pools).await;
            }
        }
        service.start();
    }

    /// True if all pools have the point.
    fn is_whole(&self, pools: &OpenPools, point: &str) -> bool {
        VOLUMES.iter().all(|(pool, volume)| {
            pools[pool].snapshots(*volume).expect("it is there").iter().any(|known| known.name == point)
        })
    }

    /// Ends a restore that was begun, as the same command given again; undoes it if its backup has gone.
    async fn restore_on(&self, world: &World, pools: &OpenPools) {
        let Some(begun) = self.restore.borrow().clone() else { return };
        let mut done = Vec::new();
        for ((pool, volume), left) in VOLUMES.into_iter().zip(begun.left) {
            let pool = &pools[pool];
            let is_done = pool.volumes().iter().any(|known| known.volume == left);
            let goal = RollbackGoal::Snapshot(begun.point.as_str().into());
            if is_done || pool.roll_back(volume, goal, left, true).await.is_ok() {
                done.push((pool, volume, left));
            }
            world.sleep(Duration::from_millis(20)).await;
        }
        if done.len() == VOLUMES.len() {
            self.left.borrow_mut().push((begun.left, self.ledger.head.get()));
            self.ledger.head.set(begun.goal);
            self.restored.set(self.restored.get() + 1);
            self.ended.borrow_mut().push((begun.point, true));
        } else {
            self.ended.borrow_mut().push((begun.point, false));
            for (index, (pool, volume, left)) in done.into_iter().enumerate() {
                let undo = RollbackGoal::Left(left.into());
                let spare = VolumeId([210 + index as u8; 16]);
                let name = pool.roll_back(volume, undo, spare, true).await.expect("what it left is there");
                pool.delete_volume(name.as_str(), false).await.expect("it is deleted by name");
            }
        }
        *self.restore.borrow_mut() = None;
    }

    /// All that was answered is there, and every head that a restore left.
    async fn expect_heads(&self, pools: &OpenPools) {
        for (index, (pool, volume)) in VOLUMES.into_iter().enumerate() {
            let head = contents_of(&VolumeDevice(pools[pool].volume(volume).expect("it is there"))).await;
            assert!(
                self.ledger.allows(&head),
                "{volume} has {head:?}, answered was {:?}",
                self.ledger.head.get()
            );
            let all_left = self.left.borrow().clone();
            for (left, contents) in all_left {
                let device =
                    VolumeDevice(pools[pool].volume(left[index]).expect("a head that was left is there"));
                assert_eq!(contents_of(&device).await, contents, "a head that was left");
            }
        }
    }

    /// Each application backup has the contents at its freeze.
    async fn expect_contents(&self, keeper: &SetKeeper, pools: &OpenPools) {
        for backup in keeper.view().backups {
            let row = keeper.catalogue().row(backup.number).expect("it is live").clone();
            if row.label != Some(LabelWord::Application) {
                continue;
            }
            let frozen = self.ledger.frozen.borrow().get(&row.start.name).copied();
            let frozen = frozen.expect("an application backup was frozen");
            for point in &row.points {
                let volume = point.volume.as_str();
                let device = pools[point.pool.as_str()].snapshot_device(volume, snapshot_of(point));
                let device =
                    device.unwrap_or_else(|error| panic!("backup {} is live: {error}", backup.number));
                assert_eq!(contents_of(&device).await, frozen, "{volume} of backup {}", backup.number);
                self.compared.set(self.compared.get() + 1);
            }
        }
    }
}

/// Backups of which points are exported.
fn in_use(keeper: &SetKeeper, verifier: &Verifier) -> Vec<u64> {
    let used = verifier.in_use();
    let rows = keeper.catalogue().rows();
    rows.filter(|(_, row)| row.points.iter().any(|point| used.contains(point)))
        .map(|(number, _)| number)
        .collect()
}

fn proven(keeper: &SetKeeper) -> usize {
    keeper.view().backups.iter().filter(|backup| backup.proof == BackupProof::Proven).count()
}

/// One history. Returns the numbers of points that were compared, of restores, and of verifications by their verdicts.
fn check_seed(seed: u64) -> (u64, u64, [u64; 3]) {
    let mut simulation = Simulation::new(seed);
    let drives: PoolDrives = VOLUMES
        .map(|(pool, _)| (pool, simulation.add_drive(DriveOptions::new(ByteCount(DRIVE_BYTES)))))
        .into();
    let mut random = simulation.random("history");
    let site = Rc::new(Site {
        drives: drives.clone(),
        disk: SimStateFile::new("mail.catalogue", seed),
        ledger: Rc::default(),
        restore: RefCell::default(),
        left: RefCell::default(),
        next_left: Cell::new(0),
        ended: RefCell::default(),
        noted: Cell::new(0),
        verified: Cell::default(),
        compared: Cell::new(0),
        restored: Cell::new(0),
    });
    let making =
        simulation.run(SimLimits::generous(), |world| async move { make_pools(&world, &drives).await });
    making.completed();
    let lives = 2 + random.below(4);
    for number in 0..lives {
        let is_last = number + 1 == lives;
        let faults = LifeFaults {
            losing: if is_last { 0.0 } else { [0.0, 3.0, 15.0][random.below(3) as usize] },
            shaky: if is_last { 0.0 } else { [0.0, 10.0, 30.0][random.below(3) as usize] },
            is_full: !is_last && random.percent(15.0),
        };
        let polls = (!is_last).then(|| 500 + random.below(12_000));
        let looks = 6 + random.below(20);
        let lived = Rc::clone(&site);
        let limits = SimLimits { polls, span: Duration::from_secs(7_200), ..SimLimits::generous() };
        let outcome = simulation.run(limits, |world| lived.live(world, faults, looks));
        match is_last {
            true => outcome.completed(),
            false => drop(outcome),
        }
        if random.percent(50.0) {
            simulation.cut_power();
            site.disk.cut_power();
        } else {
            simulation.kill();
        }
        site.expect_restores();
    }
    (site.compared.get(), site.restored.get(), site.verified.get())
}

#[test]
fn each_application_backup_has_what_was_answered_at_its_freeze_whatever_crashes() {
    let (mut compared, mut restored, mut verified) = (0, 0, [0; 3]);
    let seeds = Seeds::of(8, 160);
    let count = seeds.count();
    seeds.live_all(|seed| {
        let (points, restores, verdicts) = check_seed(seed);
        (compared, restored) = (compared + points, restored + restores);
        verified.iter_mut().zip(verdicts).for_each(|(sum, one)| *sum += one);
        Ok(())
    });
    println!("note: {compared} points compared, {restored} restores, {verified:?} verdicts");
    assert!(count < 8 || (compared > 100 && restored > 3), "{compared} points, {restored} restores");
    assert!(count < 8 || verified.iter().all(|count| *count > 0), "{verified:?} proven, damaged, unfinished");
}

/// Bugs of verifications, and the first seeds that find them.
const VERIFICATION_BUGS: [KeepingBug; 2] = [KeepingBug::UseIgnored, KeepingBug::UnfinishedIsProven];

#[test]
fn planted_bugs_of_verifications_are_noticed() {
    for bug in VERIFICATION_BUGS {
        let fails = |seed: &u64| {
            with_keeping_bug(bug, || catch_unwind(AssertUnwindSafe(|| check_seed(*seed))).is_err())
        };
        let first = (0..60).find(fails);
        println!("note: {bug:?} is found by seed {first:?}");
        assert!(first.is_some(), "{bug:?} escaped");
    }
}

#[test]
fn a_label_that_the_thaw_did_not_confirm_is_found_in_the_contents() {
    let fails = |seed: &u64| {
        let check = || catch_unwind(AssertUnwindSafe(|| check_seed(*seed))).is_err();
        with_backup_bug(BackupBug::LabelledWithoutThaw, check)
    };
    let first = (200..260).find(fails);
    println!("note: it is found by seed {first:?}");
    assert!(first.is_some(), "it escaped");
}
