//! Seeded backups of a filesystem: its freeze is slow or refused, its deadline passes, others thaw it.

use super::{
    BUDGET, assert_ends, assert_noticed,
    fakes::{CutterScript, FakeCutter, Journal},
    seeds, span,
};
use protect::{
    backup::{
        BackupCutter, BackupLabel, BackupPolicy, BackupSet, Freezable, UncoveredCut,
        filesystem::FilesystemFreeze, start_backup,
    },
    planted::BackupBug,
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{
    FreezableMount, IoError, IoErrorKind, IoResult, LocalFuture, Moment, MountThaw, World,
    sim::{SimLimits, Simulation},
};

/// A mount that thaws at its deadline, and earlier if someone else thaws it.
struct FakeMount {
    world: World,
    slowness: [Duration; 3],
    is_busy: bool,
    other_s_thaw: Option<Duration>,
    /// From when until when it was frozen, and who ended it.
    frozen: Rc<Cell<Option<(Moment, Moment, MountThaw)>>>,
}

impl FakeMount {
    fn was_frozen_at(&self, moment: Moment) -> bool {
        self.frozen.get().is_some_and(|(from, until, _)| (from..=until).contains(&moment))
    }
}

impl FreezableMount for FakeMount {
    fn mount_point(&self) -> String {
        "/mail".to_owned()
    }

    fn prepare(&self) -> LocalFuture<IoResult<()>> {
        let prepared = self.world.sleep(self.slowness[0]);
        Box::pin(async move {
            prepared.await;
            Ok(())
        })
    }

    fn freeze(&self, within: Duration) -> LocalFuture<IoResult<()>> {
        let (world, frozen) = (self.world.clone(), Rc::clone(&self.frozen));
        let (slowness, is_busy, other) = (self.slowness[1], self.is_busy, self.other_s_thaw);
        let deadline = world.now() + within;
        Box::pin(self.world.spawn("freeze", async move {
            world.sleep(slowness).await;
            if is_busy {
                return Err(IoError::new(IoErrorKind::Busy, "/mail is frozen already"));
            }
            let from = world.now();
            if from >= deadline {
                return Err(IoError::new(IoErrorKind::Other, "too late"));
            }
            let other = other.map(|span| (from + span, MountThaw::OtherFirst));
            let (until, who) = other
                .into_iter()
                .chain([(deadline, MountThaw::DeadlineFirst)])
                .min_by_key(|end| end.0)
                .unwrap();
            frozen.set(Some((from, until, who)));
            Ok(())
        }))
    }

    fn thaw(&self) -> LocalFuture<IoResult<MountThaw>> {
        let (world, frozen, slowness) = (self.world.clone(), Rc::clone(&self.frozen), self.slowness[2]);
        Box::pin(async move {
            world.sleep(slowness).await;
            let Some((from, until, who)) = frozen.get() else { return Ok(MountThaw::NotFrozen) };
            if world.now() > until {
                return Ok(who);
            }
            frozen.set(Some((from, world.now(), MountThaw::First)));
            Ok(MountThaw::First)
        })
    }
}

pub fn backup(seed: u64) -> Option<BackupLabel> {
    let mut simulation = Simulation::new(seed);
    let limits = SimLimits { span: Duration::from_secs(600), ..SimLimits::generous() };
    simulation.run(limits, take).completed()
}

async fn take(world: World) -> Option<BackupLabel> {
    let mut random = world.random("backup");
    let mount = Rc::new(FakeMount {
        world: world.clone(),
        slowness: [0; 3].map(|_| span(&mut random)),
        is_busy: random.percent(5.0),
        other_s_thaw: random.percent(20.0).then(|| span(&mut random)),
        frozen: Rc::default(),
    });
    let cutter = Rc::new(FakeCutter::new(&world, &Rc::<Journal>::default(), CutterScript::draw(&mut random)));
    let set = BackupSet {
        things: vec![Rc::new(FilesystemFreeze::new(&world, Rc::clone(&mount) as Rc<dyn FreezableMount>))
            as Rc<dyn Freezable>],
        cutter: Rc::clone(&cutter) as Rc<dyn BackupCutter>,
    };
    let policy =
        BackupPolicy::with_budget(BUDGET).expect("possible").with_uncovered(UncoveredCut::KeepAsCrash);
    let outcome = start_backup(&world, set, policy, "b1").await;
    let was_covered = cutter.returned_at().is_some_and(|at| mount.was_frozen_at(at));
    assert_ne!(outcome.label, Some(BackupLabel::Application));
    assert!(outcome.label != Some(BackupLabel::Filesystem) || was_covered, "{outcome:?}");
    world.sleep(Duration::from_secs(30)).await;
    assert!(!mount.was_frozen_at(world.now()), "it stayed frozen");
    outcome.label
}

#[test]
fn labels_of_filesystems_are_true_whoever_thaws_them() {
    assert_ends(seeds(1000), (&[Some("filesystem"), Some("crash"), None], 50), backup);
}

#[test]
fn every_planted_bug_of_filesystems_is_noticed() {
    assert_noticed(BackupBug::OF_FILESYSTEMS, 1000, backup);
}
