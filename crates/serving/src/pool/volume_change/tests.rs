//! Each change once, and the refusals of served volumes, over a simulated pool.

use super::*;
use crate::export::{AssembledExports, PoolExports, WantedExport, WantedExports, WantedTarget, WantedUnit};
use crate::figures::PoolMeters;
use crate::pool::group_change::{self, GroupChange, GroupSighting};
use array::{
    format::{DriveId, GroupId, PoolId, RedundancyClass, SnapshotId, SparingLevel, row::WriteCache},
    pool::{NewDrive, NewGroup, NewPool, OpenSetting, Pool, Snapshot, VolumeInfo, create, open},
    volume::{Bounds, Rates},
};
use iscsi::{
    scsi::{reservations::Nexus, unit::LogicalUnit},
    target::access::AccessList,
};
use std::{path::Path, rc::Rc};
use world::{
    BlockDevice, ByteCount, World,
    sim::{DriveOptions, SimLimits, Simulation},
};

const MIB: u64 = 1 << 20;
const HOST: &str = "iqn.2026-11.test:host";

fn is_sent<T: Send + 'static>() {}

#[test]
fn changes_and_their_answers_go_between_threads() {
    is_sent::<VolumeChange>();
    is_sent::<VolumeDone>();
}

/// A pool, of which nothing is served yet.
struct Bench {
    pool: Rc<Pool>,
    exports: PoolExports,
}

impl Bench {
    async fn change(&self, change: VolumeChange) -> Result<VolumeDone, Refusal> {
        perform(&change, &self.exports.changeable()).await
    }

    async fn done(&self, change: VolumeChange) -> VolumeDone {
        self.change(change).await.expect("nothing is in the way")
    }

    async fn create(&self, name: &str) -> VolumeDone {
        let limits = LimitChange::default();
        let (name, size_bytes) = (name.to_owned(), 8 * MIB);
        self.done(VolumeChange::Create { name, size_bytes, write_cache: false, raid0: false, limits }).await
    }

    async fn snapshot(&self, volume: &str, name: &str) -> TakenSnapshot {
        let (volumes, name, note) = (vec![volume.into()], name.to_owned(), String::new());
        match self.done(VolumeChange::Snapshot { volumes, name, note }).await.outcome {
            VolumeOutcome::SnapshotTaken(taken) => taken,
            other => panic!("{other:?}"),
        }
    }

    fn state(&self) -> Vec<(VolumeInfo, Vec<Snapshot>)> {
        let volumes = self.pool.volumes().into_iter();
        volumes.map(|info| (info.clone(), self.pool.snapshots(info.volume).unwrap())).collect()
    }

    /// Makes a change that is refused. All is as it was.
    async fn refused(&self, change: VolumeChange) -> String {
        let before = self.state();
        let refusal = self.change(change).await.expect_err("it is refused");
        assert_eq!(self.state(), before);
        refusal.to_string()
    }

    /// Serves "store" over both protocols, and its snapshot "monday" over NBD. Returns the unit.
    fn serve(&self) -> Rc<LogicalUnit> {
        let export = |volume: &str| WantedExport {
            name: volume.to_owned(),
            volume: volume.to_owned(),
            is_read_only: false,
        };
        let unit = WantedUnit {
            number: 0,
            volume: "store".to_owned(),
            is_read_only: false,
            is_shared: true,
            write_cache: None,
        };
        let wanted = WantedExports {
            nbd: vec![export("store"), export("store@monday")],
            targets: vec![WantedTarget { name: "mail".to_owned(), units: vec![unit] }],
            access: AccessList::everybody(),
        };
        let AssembledExports { targets, .. } = self.exports.assemble(&wanted).unwrap();
        Rc::clone(&targets[0].units[&0])
    }
}

fn with_pool<F: Future<Output = ()> + 'static>(test: impl FnOnce(Bench) -> F + 'static) {
    let mut simulation = Simulation::new(1);
    let drives = [(); 2].map(|()| simulation.add_drive(DriveOptions::new(ByteCount(65 * MIB))));
    let run = simulation.run(SimLimits::generous(), |world: World| async move {
        let devices = drives.map(|drive| drive as Rc<dyn BlockDevice>);
        let new = NewPool {
            pool: PoolId([1; 16]),
            name: "mail".to_owned(),
            slot_bytes: MIB as u32,
            sparing: SparingLevel::None,
        };
        let drive = |(number, device): (u8, Rc<dyn BlockDevice>)| NewDrive {
            drive: DriveId([number; 16]),
            serial: format!("S{number}"),
            domain: None,
            device,
        };
        create(&world, &new, &(1..).zip(devices.clone()).map(drive).collect::<Vec<_>>()).await.unwrap();
        let pool = open(&world, &devices, OpenSetting::default()).await.unwrap();
        let exports = PoolExports::new(&world, (&pool, &PoolMeters::new(&world)), Path::new("mail"));
        test(Bench { pool: Rc::clone(&pool), exports }).await;
        pool.close().await.unwrap();
    });
    run.completed();
}

#[test]
fn a_volume_is_made_set_resized_renamed_and_deleted() {
    with_pool(|bench| async move {
        let limits = LimitChange { limit: Some(ByteCount(16 * MIB)), ..LimitChange::default() };
        let (name, size_bytes) = ("store".to_owned(), 8 * MIB);
        let create = VolumeChange::Create { name, size_bytes, write_cache: true, raid0: true, limits };
        let made = bench.done(create.clone()).await;
        assert_eq!((made.outcome, made.volume.size_bytes), (VolumeOutcome::Created, 8 * MIB));
        let setting = made.volume.setting;
        assert_eq!((setting.class, setting.write_cache), (RedundancyClass::Raid0, WriteCache::On));
        assert_eq!(setting.bounds, Bounds { limit_bytes: 16 * MIB, reserve_bytes: 0 });
        let id = VolumeRef::from(made.volume.volume);
        assert!(bench.refused(create).await.contains("\"store\" exists already"));

        let limits = LimitChange { iops_max: Some(500), ..LimitChange::default() };
        let set = VolumeChange::Set { volume: id.clone(), limits, write_cache: Some(false) };
        let set = bench.done(set).await;
        assert_eq!(set.outcome, VolumeOutcome::Set { before: setting });
        assert_eq!(set.volume.setting.rates, Rates { iops_max: 500, kib_per_second_max: 0 });
        assert_eq!(set.volume.setting.write_cache, WriteCache::Off);
        assert_eq!(set.volume.setting.bounds, setting.bounds, "what is not said stays");
        let limits = LimitChange { reserve: Some(ByteCount(32 * MIB)), ..limits };
        let above = VolumeChange::Set { volume: id.clone(), limits, write_cache: Some(true) };
        bench.refused(above).await;

        let resize =
            |size_bytes, may_shrink| VolumeChange::Resize { volume: id.clone(), size_bytes, may_shrink };
        let resized = bench.done(resize(12 * MIB, false)).await;
        assert_eq!(resized.outcome, VolumeOutcome::Resized { bytes_before: 8 * MIB });
        let refused = bench.refused(resize(4 * MIB, false)).await;
        assert!(
            refused.starts_with("mail/store has 12.0 MiB, and what lies behind 4.00 MiB would be lost")
                && refused.contains("say ⟨shrink⟩"),
            "{refused}"
        );
        assert_eq!(bench.done(resize(4 * MIB, true)).await.volume.size_bytes, 4 * MIB);

        let rename = VolumeChange::Rename { volume: "store".into(), name: "mails".to_owned() };
        let renamed = bench.done(rename.clone()).await;
        assert_eq!(renamed.outcome, VolumeOutcome::Renamed { name_before: "store".to_owned() });
        assert_eq!((renamed.volume.name.as_str(), renamed.notes), ("mails", vec![]));
        assert!(bench.refused(rename).await.contains("the pool has no volume \"store\""));

        let deleted = bench.done(VolumeChange::Delete { volume: id.clone() }).await;
        assert_eq!((deleted.outcome, deleted.volume.name.as_str()), (VolumeOutcome::Deleted, "mails"));
        assert!(bench.refused(VolumeChange::Delete { volume: id }).await.contains("has no volume"));
    });
}

#[test]
fn snapshots_are_taken_cloned_rolled_back_to_and_deleted() {
    with_pool(|bench| async move {
        let (store, logs) = (bench.create("store").await.volume, bench.create("logs").await.volume);
        let volumes = vec!["store".into(), logs.volume.into()];
        let (name, note) = ("monday".to_owned(), "before the move".to_owned());
        let snapshot = VolumeChange::Snapshot { volumes, name, note };
        let VolumeOutcome::SnapshotTaken(taken) = bench.done(snapshot.clone()).await.outcome else {
            panic!("it was taken")
        };
        let both = [(store.volume, "store".to_owned()), (logs.volume, "logs".to_owned())];
        assert_eq!((taken.name.as_str(), &taken.volumes[..]), ("monday", &both[..]));
        let kept = bench.pool.snapshots("logs").unwrap().remove(0);
        assert_eq!((kept.snapshot, &kept.note[..]), (taken.snapshot, &b"before the move"[..]));
        bench.refused(snapshot).await;
        assert!(
            bench.refused(VolumeChange::Delete { volume: "logs".into() }).await.contains("has 1 snapshots")
        );

        let clone = VolumeChange::Clone {
            source: "store".into(),
            snapshot: Some(taken.snapshot.into()),
            name: "copy".to_owned(),
            is_independent: false,
        };
        let cloned = bench.done(clone.clone()).await;
        assert_eq!((cloned.outcome, cloned.volume.name.as_str()), (VolumeOutcome::Cloned, "copy"));
        assert!(cloned.volume.origin.is_some());
        bench.refused(clone).await;
        let fill = bench.done(VolumeChange::Fill { volume: "copy".into() }).await;
        assert_eq!(fill.outcome, VolumeOutcome::FillingBegun);
        let cancel = bench.done(VolumeChange::CancelFilling { volume: "copy".into() }).await;
        assert_eq!((cancel.outcome, cancel.volume.filling), (VolumeOutcome::FillingCancelled, None));

        let roll_back = |volume: &str, snapshot: Option<&str>| VolumeChange::RollBack {
            volume: volume.into(),
            to: snapshot.map_or(RollbackTo::Left, |name| RollbackTo::Snapshot(name.into())),
            is_forced: false,
        };
        let resize = VolumeChange::Resize { volume: "store".into(), size_bytes: 9 * MIB, may_shrink: false };
        bench.done(resize).await;
        let back = bench.done(roll_back("store", Some("monday"))).await;
        assert_eq!((back.volume.volume, back.volume.size_bytes), (store.volume, 8 * MIB));
        let VolumeOutcome::RolledBack(rolled_back) = back.outcome else { panic!("it was rolled back") };
        assert_eq!((rolled_back.left_name.as_str(), rolled_back.bytes_before), ("store~1", 9 * MIB));
        assert_eq!(rolled_back.withheld, Default::default());
        let left = bench.exports.changeable().info(&"store~1".into()).unwrap();
        assert_eq!(left.volume, rolled_back.left);
        let refused = bench.refused(roll_back("store", None)).await;
        assert!(
            refused.starts_with("mail/store is neither a snapshot nor what a rollback left"),
            "{refused}"
        );
        assert_eq!(bench.done(roll_back("store~1", None)).await.volume.size_bytes, 9 * MIB);
        // A clone takes its place, unless it is served itself.
        let take_place = |to: &str| VolumeChange::RollBack {
            volume: "store".into(),
            to: RollbackTo::Volume(to.into()),
            is_forced: false,
        };
        let refused = bench.refused(take_place("none")).await;
        assert!(refused.contains("none"), "{refused}");
        let back = bench.done(take_place("copy")).await;
        assert_eq!((back.volume.volume, back.volume.size_bytes), (store.volume, 8 * MIB));
        let VolumeOutcome::RolledBack(rolled_back) = back.outcome else { panic!("it was rolled back") };
        assert_eq!((rolled_back.left_name.as_str(), rolled_back.bytes_before), ("store~1", 9 * MIB));
        assert!(bench.exports.changeable().info(&"copy".into()).is_err(), "it is no volume any more");

        let delete = VolumeChange::DeleteSnapshot { volume: "logs".into(), snapshot: "monday".into() };
        let deleted = bench.done(delete.clone()).await;
        let outcome = VolumeOutcome::SnapshotDeleted { snapshot: taken.snapshot, name: "monday".to_owned() };
        assert_eq!((deleted.outcome, deleted.volume.snapshots), (outcome, 0));
        let refused = bench.refused(delete).await;
        assert!(refused.contains("volume \"logs\" has no snapshot \"monday\""), "{refused}");
    });
}

#[test]
fn what_is_served_is_neither_deleted_nor_renamed() {
    with_pool(|bench| async move {
        bench.create("store").await;
        bench.snapshot("store", "monday").await;
        let unit = bench.serve();
        for (change, how) in [
            (
                VolumeChange::Delete { volume: "store".into() },
                "mail/store is served as NBD export store, unit mail/0",
            ),
            (
                VolumeChange::DeleteSnapshot { volume: "store".into(), snapshot: "monday".into() },
                "mail/store@monday is served as NBD export store@monday",
            ),
        ] {
            let refused = bench.refused(change).await;
            assert!(refused.starts_with(how) && refused.contains("out of the site file"), "{refused}");
        }
        let rename = VolumeChange::Rename { volume: "store".into(), name: "mails".to_owned() };
        let refused = bench.refused(rename).await;
        assert!(refused.contains("is served as") && refused.contains("was = \"store\""), "{refused}");
        let set = |write_cache| VolumeChange::Set {
            volume: "store".into(),
            limits: LimitChange::default(),
            write_cache: Some(write_cache),
        };
        let on = bench.done(set(true)).await;
        assert!(on.notes[0].contains("clients of now keep stable writes"), "{:?}", on.notes);
        assert_eq!(bench.done(set(false)).await.notes, Vec::<String>::new());
        assert!(Rc::ptr_eq(&unit, &bench.serve()), "it is the same unit");
        bench.exports.assemble(&WantedExports::default()).unwrap();
        let renamed =
            bench.done(VolumeChange::Rename { volume: "store".into(), name: "mails".to_owned() }).await;
        assert_eq!(renamed.volume.name, "mails");
        bench.done(VolumeChange::Rename { volume: "mails".into(), name: "store".to_owned() }).await;
        let delete = VolumeChange::DeleteSnapshot { volume: "store".into(), snapshot: "monday".into() };
        bench.done(delete).await;
        bench.done(VolumeChange::Delete { volume: "store".into() }).await;
    });
}

#[test]
fn a_rollback_under_clients_is_forced_and_withholds_until_they_are_readmitted() {
    with_pool(|bench| async move {
        bench.create("store").await;
        bench.snapshot("store", "monday").await;
        let unit = bench.serve();
        let nexus = Nexus(format!("{HOST},i,0x000000000001"));
        unit.begin_session(&nexus);
        let roll_back = |snapshot: &str, is_forced| VolumeChange::RollBack {
            volume: "store".into(),
            to: RollbackTo::Snapshot(snapshot.into()),
            is_forced,
        };
        let refused = bench.refused(roll_back("monday", false)).await;
        assert!(refused.contains(HOST) && refused.contains("⟨force⟩"), "{refused}");
        bench.refused(roll_back("tuesday", true)).await;
        assert!(!unit.must_log_out(&nexus), "a failed one withholds nothing");

        let back = bench.done(roll_back("monday", true)).await;
        let VolumeOutcome::RolledBack(rolled_back) = back.outcome else { panic!("it was rolled back") };
        assert_eq!(rolled_back.withheld.initiators, [HOST]);
        assert!(rolled_back.withheld.nbd && unit.must_log_out(&nexus));
        assert_eq!(back.volume.withheld_from.len(), 2);

        let readmit = |name: &str, nbd| VolumeChange::Readmit {
            volume: "store".into(),
            clients: ReadmittedClients::Named { initiators: vec![name.to_owned()], nbd },
        };
        let refused = bench.refused(readmit("iqn.2026-11.test:other", true)).await;
        assert!(refused.contains("mail/store is not withheld from iqn.2026-11.test:other"), "{refused}");
        let readmitted = bench.done(readmit(HOST, false)).await;
        let VolumeOutcome::Readmitted(answer) = readmitted.outcome else { panic!("it was readmitted") };
        assert_eq!((answer.initiators, answer.nbd), (vec![HOST.to_owned()], false));
        assert!(!unit.must_log_out(&nexus));
        assert_eq!(readmitted.volume.withheld_from.len(), 1, "NBD clients still are");
        let (volume, clients) = (VolumeRef::from("store"), ReadmittedClients::All);
        let all = bench.done(VolumeChange::Readmit { volume, clients }).await;
        let VolumeOutcome::Readmitted(answer) = all.outcome else { panic!("they were readmitted") };
        assert!(answer.initiators.is_empty() && answer.nbd && all.volume.withheld_from.is_empty());
        let origin = crate::export::IdentityOrigin::Volume(all.volume.volume);
        assert_eq!(bench.exports.served(&origin).unwrap().served.withheld_from(), Default::default());
    });
}

#[test]
fn a_group_is_rolled_back_under_clients_by_force_alone_and_withheld_from_them() {
    with_pool(|bench| async move {
        for name in ["store", "log"] {
            bench.create(name).await;
        }
        let (group, snapshot) = (GroupId([7; 16]), SnapshotId([8; 16]));
        let new = NewGroup { name: "all".to_owned(), group, pools: Vec::new() };
        bench.pool.create_group(&new, &["store", "log"]).await.unwrap();
        let (name, note) = ("monday".to_owned(), "before".to_owned());
        let on = || bench.exports.changeable();
        let cut = GroupChange::Snapshot { name, note };
        group_change::perform(&on().with_identity(snapshot.0), group, &cut, None).await.unwrap();
        let unit = bench.serve();
        let nexus = Nexus(format!("{HOST},i,0x000000000001"));
        unit.begin_session(&nexus);
        let seed = [9; 16];
        let roll_back = async |snapshot: SnapshotId, is_forced: bool| {
            let change = GroupChange::RollBack { snapshot, is_forced };
            group_change::perform(&on().with_identity(seed), group, &change, None).await
        };
        let before = bench.state();
        let refused = roll_back(snapshot, false).await.unwrap_err().refusal.to_string();
        assert!(refused.starts_with("mail/store is served as NBD export store, unit mail/0"), "{refused}");
        assert!(refused.contains(HOST) && refused.contains("⟨force⟩"), "{refused}");
        roll_back(SnapshotId([1; 16]), true).await.unwrap_err();
        assert_eq!(bench.state(), before);
        assert!(!unit.must_log_out(&nexus), "a failed one withholds nothing");

        let done = roll_back(snapshot, true).await.unwrap();
        let made: Vec<_> = done.made.iter().map(|one| (one.volume.as_str(), one.made.as_str())).collect();
        assert_eq!(made, [("store", "store~1"), ("log", "log~1")]);
        assert_eq!(done.made[0].withheld.initiators, [HOST]);
        assert!(done.made[0].withheld.nbd && unit.must_log_out(&nexus));
        assert_eq!(done.made[1].withheld, Default::default(), "nobody uses it");
        let info = bench.exports.changeable().info(&"store".into()).unwrap();
        assert_eq!(info.withheld_from.len(), 2, "the pool keeps their names");
        let sighting = GroupSighting::of(&on(), group, seed).unwrap();
        assert_eq!(sighting.made.len(), sighting.members.len(), "a repeated request finds it done");
    });
}

#[test]
fn what_a_rollback_left_is_not_rolled_back_to_while_it_is_served() {
    with_pool(|bench| async move {
        bench.create("store").await;
        bench.snapshot("store", "monday").await;
        let roll_back =
            |volume: &str, to| VolumeChange::RollBack { volume: volume.into(), to, is_forced: true };
        bench.done(roll_back("store", RollbackTo::Snapshot("monday".into()))).await;
        let left =
            WantedExport { name: "before".to_owned(), volume: "store~1".to_owned(), is_read_only: true };
        bench.exports.assemble(&WantedExports { nbd: vec![left], ..WantedExports::default() }).unwrap();
        let refused = bench.refused(roll_back("store~1", RollbackTo::Left)).await;
        assert!(refused.starts_with("mail/store~1 is served as NBD export before"), "{refused}");
        bench.exports.assemble(&WantedExports::default()).unwrap();
        bench.done(roll_back("store~1", RollbackTo::Left)).await;
    });
}
