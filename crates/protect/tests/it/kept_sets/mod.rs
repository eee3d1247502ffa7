//! The keeper of a set in simulated time: crashes between any two awaits, power cuts, pools that are silent, that cut half a
//! backup, refuse removals or are full, applications that do not freeze, people who order, hold and delete.

mod fake_pools;
mod releasing;
mod replica_verdicts;

use fake_pools::{FakePools, ShakyApplication, Surroundings};
use protect::{
    backup::{BackupPolicy, UncoveredCut},
    backup_schedule::{FreezeLimit, ScheduleSet},
    catalogue::{BackupStage, CatalogueDetail, CatalogueScope, file::read},
    drilling::DrillPolicy,
    planted_keeping::{KeepingBug, with_keeping_bug},
    retention::{BackupProof, KeepPolicy, KeepSettings},
    set_keeper::{
        CopyResult, DrillResult, NothingFrozen, PersonOrder, PersonRefusal, SetFreezing, SetKeeper,
        SetNotice, SetOpening, SetProblem, SetSettings, SetVolume, VerificationResult, VerificationVerdict,
    },
    vault_copies::{VaultPolicy, VaultSettings},
    verification::{VerificationPolicy, VerificationSettings},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};
use world::{
    Random, World,
    sim::{SimLimits, Simulation},
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Everything that outlives the keeper.
struct History {
    place: Rc<Surroundings>,
    settings: SetSettings,
    has_freeze: bool,
    /// Records stay as they are for that long, if not for as long as usual.
    detail: Option<CatalogueDetail>,
    /// Backups with copies in the vault, and the times of their cuts.
    vault: RefCell<BTreeMap<u64, i64>>,
}

fn settings(random: &mut Random) -> SetSettings {
    let texts = [&["3x15min", "2x1h"][..], &["4x1h"], &["5x5min", "3x1h"]];
    let has_freeze = random.percent(50.0);
    let uncovered = if random.percent(50.0) { UncoveredCut::KeepAsCrash } else { UncoveredCut::Remove };
    let keep = KeepSettings {
        at_least: Some(1 + random.below(2) as u32),
        lock: random.percent(20.0).then(|| "30min".to_owned()),
        at_most: random.percent(20.0).then(|| "2d".to_owned()),
        ..KeepSettings::default()
    };
    let volume = |pool: &str, volume: &str, is_log| SetVolume {
        pool: pool.to_owned(),
        volume: volume.to_owned(),
        is_log,
    };
    SetSettings {
        name: "mail".to_owned(),
        volumes: vec![volume("east", "store", false), volume("west", "log", true)],
        schedules: ScheduleSet::parse(texts[random.below(3) as usize], "UTC").expect("a set"),
        keep: KeepPolicy::new(&keep).expect("rules"),
        freeze_limit: FreezeLimit { has_freeze, has_logs: random.percent(50.0), ..FreezeLimit::default() },
        policy: BackupPolicy::default().with_uncovered(uncovered),
        verification: random.percent(60.0).then(|| verification(random)),
        drill: None,
        vault: random.percent(60.0).then(|| vault(random)),
    }
}

const VAULT: &str = "/mnt/vault";

fn vault(random: &mut Random) -> VaultPolicy {
    let copy = ["14x1d", "9x6h", "5x1d@03:00"][random.below(3) as usize].to_owned();
    let settings = VaultSettings { to: VAULT.to_owned(), copy, ..VaultSettings::default() };
    VaultPolicy::new(&settings).expect("a policy")
}

fn verification(random: &mut Random) -> VerificationPolicy {
    let at = random.percent(60.0).then(|| format!("{:02}:00", random.below(24)));
    let settings = VerificationSettings { level: "deep".to_owned(), at, ..VerificationSettings::default() };
    VerificationPolicy::new(&settings).expect("a policy")
}

impl History {
    fn new(seed: u64, random: &mut Random) -> Self {
        let settings = settings(random);
        let has_freeze = settings.freeze_limit.has_freeze;
        let kept_s = (1 + random.below(5)) * 3_600;
        let detail = CatalogueDetail { kept_s, least_bytes: 1, least_part: 20 };
        let detail = random.percent(70.0).then_some(detail);
        Self {
            place: Rc::new(Surroundings::new(seed)),
            settings,
            has_freeze,
            detail,
            vault: RefCell::default(),
        }
    }

    fn open(&self, world: &World) -> SetKeeper {
        let freezing: Rc<dyn SetFreezing> = match self.has_freeze {
            true => Rc::new(ShakyApplication::of(world, &self.place)),
            false => Rc::new(NothingFrozen),
        };
        let opening = SetOpening {
            settings: self.settings.clone(),
            pools: Rc::new(FakePools::new(world, &self.place)),
            freezing,
            generator: "spindle test".to_owned(),
            runner: "a test".to_owned(),
        };
        let opened = SetKeeper::open(world, Box::new(self.place.disk.open()), opening);
        let mut keeper =
            opened.unwrap_or_else(|error| panic!("a crash made the catalogue unreadable: {error}"));
        if let Some(detail) = self.detail {
            keeper.set_detail(detail);
        }
        keeper
    }

    /// Keeps the set, and gives orders of people, until the power fails or for `span`.
    async fn live(&self, world: &World, span: Duration, with_people: bool) -> SetKeeper {
        let mut keeper = self.open(world);
        let mut random = world.random("people");
        let end = world.now() + span;
        loop {
            let look = keeper.look().await.unwrap_or_else(|error| panic!("a look failed: {error}"));
            if let Some(made) = &look.made {
                self.place.note_made(made);
            }
            self.listen(&mut keeper);
            self.verify(&mut keeper, world, &mut random).await;
            self.copy(&mut keeper, &mut random).await;
            if with_people && random.percent(15.0) {
                self.order(&mut keeper, &mut random).await;
                self.listen(&mut keeper);
            }
            if world.now() + look.wait >= end {
                return keeper;
            }
            assert!(look.wait >= Duration::from_secs(1), "a keeper rests");
            world.sleep(look.wait).await;
        }
    }

    async fn order(&self, keeper: &mut SetKeeper, random: &mut Random) {
        let numbers: Vec<u64> = keeper.view().backups.iter().map(|backup| backup.number).collect();
        if numbers.is_empty() || random.percent(30.0) {
            match keeper.back_up("anna", &[]).await {
                Ok(made) => self.place.note_made(&made),
                Err(PersonRefusal::UnderWay(_)) => {}
                Err(error) => panic!("{error}"),
            }
            return;
        }
        let number = numbers[random.below(numbers.len() as u64) as usize];
        let hold = "upgrade".to_owned();
        let order = match random.below(4) {
            0 => PersonOrder::Hold { hold },
            1 => PersonOrder::Release { hold },
            2 => PersonOrder::Lock { for_s: 3_600 },
            _ => PersonOrder::Delete { may_be_last: random.percent(20.0) },
        };
        let followed = keeper.follow(number, &order, "anna").await;
        let is_held = self.place.held.borrow().contains(&number);
        match (&order, followed) {
            (PersonOrder::Hold { .. }, Ok(())) => drop(self.place.held.borrow_mut().insert(number)),
            (PersonOrder::Release { .. }, Ok(())) => drop(self.place.held.borrow_mut().remove(&number)),
            (PersonOrder::Delete { .. }, Ok(())) => assert!(!is_held, "a held one is deleted by a person"),
            (_, Err(PersonRefusal::Catalogue(error))) => panic!("{error}"),
            (_, Ok(()) | Err(_)) => {}
        }
    }

    /// Verifies what is due, sometimes: others do, and may die over it.
    async fn verify(&self, keeper: &mut SetKeeper, world: &World, random: &mut Random) {
        let Some(due) = keeper.verification_due() else { return };
        let view = keeper.view();
        let meant = view.backups.iter().find(|backup| backup.number == due.number).expect("it is there");
        assert_eq!(meant.proof, BackupProof::Unproven, "one that was verified is due again");
        assert!(meant.kind.is_full(), "logs are due");
        let is_daily = self.settings.verification.as_ref().expect("it is due").to_string().contains(" at ");
        if is_daily {
            // A backup that is cut after the time of the day waits for the next one.
            let now_s = world.wall().seconds;
            let hour = |at_s: i64| at_s.div_euclid(3_600);
            let start = (hour(meant.at.0) + 1..=hour(now_s))
                .any(|hour| Some(hour.rem_euclid(24)) == self.verification_hour());
            assert!(start || meant.at.0 % 3_600 == 0, "{} is due before its time", meant.name);
        }
        if random.percent(60.0) {
            return;
        }
        let verdict = match random.below(4) {
            0 => VerificationVerdict::Damaged,
            1 => VerificationVerdict::Unfinished,
            _ => VerificationVerdict::Proven,
        };
        let (level, version) = (due.level.to_owned(), "1".to_owned());
        let findings = vec!["a finding".to_owned()];
        let order = PersonOrder::NoteVerification(VerificationResult {
            level,
            version,
            verdict,
            findings,
            points: Vec::new(),
        });
        match keeper.follow(due.number, &order, "verifier").await {
            Err(PersonRefusal::Catalogue(error)) => panic!("{error}"),
            // It went meanwhile.
            Err(_) => return,
            Ok(()) => {}
        }
        let view = keeper.view();
        let proof = view.backups.iter().find(|backup| backup.number == due.number).map(|backup| backup.proof);
        let expected = match verdict {
            VerificationVerdict::Proven => BackupProof::Proven,
            VerificationVerdict::Damaged => BackupProof::Damaged,
            VerificationVerdict::Unfinished => BackupProof::Unproven,
        };
        assert_eq!(proof, Some(expected), "after {verdict:?}");
        let next = keeper.verification_due().map(|next| next.number);
        assert_ne!(next, Some(due.number), "it is due again at once");
    }

    /// Copies what is due, sometimes: the vault may be away, or what was copied may not be noted.
    async fn copy(&self, keeper: &mut SetKeeper, random: &mut Random) {
        let Some(due) = keeper.copy_due() else { return };
        let view = keeper.view();
        let meant = view.backups.iter().find(|backup| backup.number == due.number).expect("it is there");
        assert!(meant.kind.is_full(), "logs are copied");
        assert_ne!(meant.proof, BackupProof::Damaged, "a damaged one is copied");
        let copied = view.backups.iter().rfind(|backup| !backup.copies.is_empty());
        if let Some(copied) = copied {
            assert!(meant.number > copied.number, "{} is copied again", meant.name);
            let slots = |at_s: i64| match &due.count {
                14 => at_s.div_euclid(86_400),
                9 => at_s.div_euclid(21_600),
                _ => (at_s - 3 * 3_600).div_euclid(86_400),
            };
            // A clock that was set back makes an early slot of a later backup.
            assert!(slots(meant.at.0) > slots(copied.at.0), "{} fills no slot", meant.name);
        }
        let order = match random.below(10) {
            0..=4 => return,
            5 => PersonOrder::NoteFailedCopy { why: "the disk is unplugged".to_owned() },
            _ => {
                let mut vault = self.vault.borrow_mut();
                vault.insert(due.number, meant.at.0);
                while vault.len() > due.count as usize {
                    vault.pop_first();
                }
                let copies = Some(vault.keys().copied().collect());
                PersonOrder::NoteCopy(CopyResult {
                    to: due.to.clone(),
                    id: "c0ffee".to_owned(),
                    bytes: 1,
                    copies,
                })
            }
        };
        match keeper.follow(due.number, &order, "copier").await {
            Err(PersonRefusal::Catalogue(error)) => panic!("{error}"),
            // It went meanwhile.
            Err(_) => return,
            Ok(()) => {}
        }
        assert_eq!(keeper.copy_due().map(|next| next.number), None, "one is due again at once");
        let vault = self.vault.borrow();
        for backup in keeper.view().backups {
            assert!(
                backup.copies.is_empty() || vault.contains_key(&backup.number),
                "{} has a copy",
                backup.name
            );
        }
    }

    fn verification_hour(&self) -> Option<i64> {
        let text = self.settings.verification.as_ref()?.to_string();
        text.split_once(" at ")?.1.get(..2)?.parse().ok()
    }

    fn listen(&self, keeper: &mut SetKeeper) {
        for notice in keeper.take_notices() {
            self.place.heard.borrow_mut().insert(match notice {
                SetNotice::Note(text) | SetNotice::Warning(text) => kind_of(&text),
                SetNotice::Began(problem, _) => problem.word(),
                SetNotice::Ended(_) => "ended",
            });
        }
    }

    /// With all faults gone, catalogue and pools agree, and nothing is lost but by name.
    fn expect_agreement(&self, keeper: &SetKeeper) {
        let view = keeper.view();
        let mut problems: Vec<SetProblem> = view.problems.keys().copied().collect();
        let by_people = self.place.removed_by_people.borrow();
        problems.retain(|problem| *problem != SetProblem::Strays || by_people.is_empty());
        // Those who verify and copy are lazy.
        problems.retain(|problem| ![SetProblem::Unverified, SetProblem::Uncopied].contains(problem));
        assert_eq!(problems, [], "{:?}", view.problems);
        let live: BTreeSet<u64> = view.backups.iter().map(|backup| backup.number).collect();
        let there: BTreeSet<u64> =
            self.place.numbers().into_iter().filter(|number| !by_people.contains(number)).collect();
        let of_set = live.iter().copied().filter(|number| !by_people.contains(number)).collect();
        assert_eq!(there, of_set, "points, and backups of the catalogue");
        let lost: Vec<u64> =
            self.place.held.borrow().iter().copied().filter(|held| !live.contains(held)).collect();
        assert!(lost.iter().all(|number| by_people.contains(number)), "held ones are gone: {lost:?}");
        let all = read(&self.place.disk.open(), CatalogueScope::All).expect("intact").expect("a catalogue");
        for number in self.place.made.borrow().iter() {
            let stage = all.catalogue.row(*number).map(|row| row.stage);
            let days = all.catalogue.summed().iter();
            let is_summed_up =
                days.filter_map(|day| day.backups).any(|(first, last)| (first..=last).contains(number));
            let is_right = match stage {
                Some(BackupStage::Cut | BackupStage::Deleting | BackupStage::Deleted) => true,
                Some(BackupStage::Lost) => by_people.contains(number),
                None => is_summed_up,
                Some(BackupStage::Begun | BackupStage::Failed) => false,
            };
            assert!(is_right, "backup {number} was made, and is {stage:?}");
        }
        let unwanted: Vec<u64> = view
            .backups
            .iter()
            .filter(|backup| backup.stays.is_empty())
            .map(|backup| backup.number)
            .collect();
        // A lock that ended since the last round, or the base before the last copy, is looked at by the next one.
        let may_end = self.settings.keep.lock_s().is_some() || self.settings.vault.is_some();
        assert!(unwanted.is_empty() || may_end, "nothing wants {unwanted:?}");
    }
}

fn kind_of(text: &str) -> &'static str {
    let kinds = [
        "are summed up",
        "was made",
        "was found",
        "is lost",
        "is deleted: the pool",
        "logs before",
        "backup",
        "is deleted",
        "missed",
    ];
    kinds
        .into_iter()
        .find(|kind| text.contains(kind) || *kind == "is deleted: the pool" && text.contains("% full"))
        .unwrap_or("other")
}

/// One history; the kinds of notices that were heard in it.
pub fn check_seed(seed: u64) -> BTreeSet<&'static str> {
    let mut simulation = Simulation::new(seed);
    let mut random = simulation.random("history");
    let history = Rc::new(History::new(seed, &mut random));
    for _ in 0..1 + random.below(4) {
        history.place.draw_faults(&mut random);
        let span = Duration::from_secs(600 + random.below(20_000));
        let polls = random.percent(80.0).then(|| 20 + random.below(1_500));
        let lived = Rc::clone(&history);
        let limits = SimLimits { polls, span: span + HOUR, ..SimLimits::generous() };
        simulation.run(limits, |world| async move { drop(lived.live(&world, span, true).await) });
        if random.percent(50.0) {
            simulation.cut_power();
            history.place.disk.cut_power();
        } else {
            simulation.kill();
        }
        if random.percent(20.0) {
            history.place.remove_by_person(&mut random);
        }
    }
    history.place.end_faults();
    let limits = SimLimits { span: HOUR * 8, ..SimLimits::generous() };
    let last = Rc::clone(&history);
    let outcome = simulation.run(limits, |world| async move {
        let began = last.place.made.borrow().len();
        let keeper = last.live(&world, HOUR * 5, false).await;
        assert!(last.place.made.borrow().len() > began + 3, "backups go on");
        last.expect_agreement(&keeper);
    });
    outcome.completed();
    let heard = history.place.heard.borrow();
    heard.clone()
}

#[test]
fn a_set_is_kept_whatever_crashes_and_fails() {
    let mut heard = BTreeSet::new();
    for seed in super::keeping::seeds(40) {
        println!("seed {seed}");
        heard.extend(check_seed(seed));
    }
    for kind in [
        "was made",
        "was found",
        "is lost",
        "is deleted: the pool",
        "failing",
        "waiting",
        "left",
        "full",
        "logs before",
        "are summed up",
    ] {
        assert!(heard.contains(kind), "no history had: {kind}; heard {heard:?}");
    }
}

/// A set that makes a backup each hour, undisturbed, and has a verification each night and a drill on Sundays.
fn undisturbed() -> History {
    let mut random = Simulation::new(1).random("history");
    let mut history = History::new(1, &mut random);
    let nightly = VerificationSettings {
        level: "deep".to_owned(),
        at: Some("22:00".to_owned()),
        ..VerificationSettings::default()
    };
    history.settings.verification = Some(VerificationPolicy::new(&nightly).expect("a policy"));
    history.settings.drill = Some(DrillPolicy::new("1w", Some("Sun 04:00")).expect("a policy"));
    history.settings.schedules = ScheduleSet::parse(&["100x1h"], "UTC").expect("a set");
    history.settings.keep = KeepPolicy::default();
    history.settings.freeze_limit.has_freeze = false;
    (history.has_freeze, history.detail) = (false, None);
    history.place.end_faults();
    history
}

#[test]
fn a_drill_is_due_once_a_slot_and_none_for_long_is_said() {
    let history = undisturbed();
    let limits = SimLimits { span: HOUR * 24 * 60, ..SimLimits::generous() };
    let outcome = Simulation::new(2).run(limits, |world| async move {
        let mut keeper = history.open(&world);
        let drill = |is_good| {
            let findings = vec!["the log ends early".to_owned()];
            PersonOrder::NoteDrill(DrillResult { is_good, rto_s: 1, rpo_s: 2, findings })
        };
        keeper.look().await.expect("a look");
        assert!(!keeper.has_drill_due(), "its slot began before the set");
        let mut due_at = Vec::new();
        let mut said_on_day = None;
        for day in 0..50 {
            keeper.look().await.expect("a look");
            if keeper.has_drill_due() {
                due_at.push(day);
                let newest = keeper.view().backups.last().expect("one").number;
                // The first one is good.
                keeper.follow(newest, &drill(due_at.len() == 1), "drill").await.expect("noted");
                assert!(!keeper.has_drill_due(), "once a slot");
            }
            let is_said = keeper.view().problems.contains_key(&SetProblem::Undrilled);
            said_on_day = said_on_day.or(is_said.then_some(day));
            world.sleep(HOUR * 24).await;
        }
        assert!(due_at.windows(2).all(|pair| pair[1] - pair[0] == 7), "{due_at:?}");
        assert_eq!(said_on_day, Some(due_at[0] + 35), "since the good one");
        let text = keeper.view().problems[&SetProblem::Undrilled].clone();
        assert!(text.ends_with("was bad"), "{text}");
        let newest = keeper.view().backups.last().expect("one").number;
        keeper.follow(newest, &drill(true), "drill").await.expect("noted");
        assert!(!keeper.view().problems.contains_key(&SetProblem::Undrilled), "it is over");
    });
    outcome.completed();
}

#[test]
fn a_set_says_that_nothing_was_verified_for_a_day() {
    let history = undisturbed();
    let limits = SimLimits { span: HOUR * 100, ..SimLimits::generous() };
    let outcome = Simulation::new(2).run(limits, |world| async move {
        let mut keeper = history.open(&world);
        let mut said_at_h = None;
        for hour in 0..60 {
            keeper.look().await.expect("a look");
            let is_said = keeper.view().problems.contains_key(&SetProblem::Unverified);
            said_at_h = said_at_h.or(is_said.then_some(hour));
            world.sleep(HOUR).await;
        }
        assert_eq!(said_at_h, Some(48), "a day until it is due at the latest, and a day more");
        let note = |verdict| {
            let (level, version) = ("deep".to_owned(), "1".to_owned());
            let findings = vec!["the disk is unplugged".to_owned()];
            PersonOrder::NoteVerification(VerificationResult {
                level,
                version,
                verdict,
                findings,
                points: Vec::new(),
            })
        };
        let due = keeper.verification_due().expect("one is due");
        keeper.follow(due.number, &note(VerificationVerdict::Unfinished), "verifier").await.expect("noted");
        keeper.look().await.expect("a look");
        let text = keeper.view().problems[&SetProblem::Unverified].clone();
        assert!(text.ends_with("the last one did not end: the disk is unplugged"), "{text}");
        let due = keeper.verification_due().expect("another one is due");
        keeper.follow(due.number, &note(VerificationVerdict::Proven), "verifier").await.expect("noted");
        assert!(!keeper.view().problems.contains_key(&SetProblem::Unverified), "it is over at once");
    });
    outcome.completed();
}

#[test]
fn a_vault_that_is_away_is_said_after_a_day_and_gets_the_newest_backup_when_it_is_back() {
    let mut history = undisturbed();
    let daily = VaultSettings { to: VAULT.to_owned(), copy: "2x1d".to_owned(), ..VaultSettings::default() };
    history.settings.vault = Some(VaultPolicy::new(&daily).expect("a policy"));
    let limits = SimLimits { span: HOUR * 24 * 12, ..SimLimits::generous() };
    let outcome = Simulation::new(2).run(limits, |world| async move {
        let mut keeper = history.open(&world);
        let copied = |copies: &[u64]| {
            let copies = Some(copies.to_vec());
            PersonOrder::NoteCopy(CopyResult {
                to: VAULT.to_owned(),
                id: "c0ffee".to_owned(),
                bytes: 1,
                copies,
            })
        };
        let (mut copies, mut said_at, mut tries) = (Vec::new(), None, 0);
        for hour in 0..24 * 10 {
            keeper.look().await.expect("a look");
            let is_away = (60..24 * 8).contains(&hour);
            if let Some(due) = keeper.copy_due() {
                if is_away {
                    tries += 1;
                    let why = "the disk is unplugged".to_owned();
                    let order = PersonOrder::NoteFailedCopy { why };
                    keeper.follow(due.number, &order, "copier").await.expect("noted");
                } else {
                    let newest = keeper.view().backups.last().expect("one").number;
                    assert_eq!(due.number, newest, "the newest one");
                    copies.push(due.number);
                    let kept = &copies[copies.len().saturating_sub(2)..];
                    keeper.follow(due.number, &copied(kept), "copier").await.expect("noted");
                }
            }
            if let Some(text) = keeper.view().problems.get(&SetProblem::Uncopied) {
                said_at = said_at.or(Some(hour));
                assert!(text.ends_with("the last copy did not end: the disk is unplugged"), "{text}");
            }
            world.sleep(HOUR).await;
        }
        assert!(said_at.is_some_and(|hour| (84..=98).contains(&hour)), "a day after it was due: {said_at:?}");
        assert!((4..14).contains(&tries), "tried less and less often: {tries}");
        assert!((4..=6).contains(&copies.len()), "one a day, none of the days without it: {copies:?}");
        assert!(!keeper.view().problems.contains_key(&SetProblem::Uncopied), "it is over");
        let with_copy: Vec<u64> =
            keeper.view().backups.iter().filter(|one| !one.copies.is_empty()).map(|one| one.number).collect();
        assert_eq!(with_copy, copies[copies.len() - 2..], "as many as the schedule says");
    });
    outcome.completed();
}

#[test]
fn planted_bugs_of_a_keeper_are_noticed() {
    if !crate::is_full_run("the search for planted bugs of a keeper is of") {
        return;
    }
    for bug in [
        KeepingBug::CutBeforeBegun,
        KeepingBug::PointsBeforeDeleting,
        KeepingBug::UseIgnored,
        KeepingBug::DeletionForgotten,
        KeepingBug::SilentPoolIsEmpty,
        KeepingBug::UnfinishedIsProven,
        KeepingBug::DueTooEarly,
        KeepingBug::CopiedAgain,
        KeepingBug::DamagedIsCopied,
        KeepingBug::UnprovenReleases,
    ] {
        let fails = |seed: &u64| {
            with_keeping_bug(bug, || catch_unwind(AssertUnwindSafe(|| check_seed(*seed))).is_err())
        };
        let seed = (0..300).find(fails);
        println!("note: {bug:?} was noticed by seed {seed:?}");
        assert!(seed.is_some(), "nothing noticed {bug:?}");
    }
}
