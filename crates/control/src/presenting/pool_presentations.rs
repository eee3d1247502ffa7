//! The presentations of a pool, on its thread: what is served of them beside what the site's file wants.

use super::{
    board::PresentationBoard,
    presentation::{Presentation, PresentationStage},
};
use crate::planted::{self, PresentBug};
use array::{
    format::PoolId,
    pool::{Pool, VolumeInfo},
};
use iscsi::target::access::InitiatorRights;
use serving::export::{WantedExports, WantedTarget, WantedUnit, name_of};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The reason for which a presentation is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentationProblem {
    pub text: String,
    /// The point, or its clone, is not there any more.
    pub is_gone: bool,
}

/// Problems by the presentations' UUIDs.
pub(crate) type PresentationProblems = BTreeMap<[u8; 16], PresentationProblem>;

/// The presentations of a pool.
pub(crate) struct PoolPresentations {
    board: PresentationBoard,
    pool: PoolId,
    served: RefCell<ServedPresentations>,
}

/// The presentations of a pool, as they are served.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedPresentations {
    /// Of those that are not served, although it is their time.
    pub problems: Arc<PresentationProblems>,
    /// The initiators that the site lists, in lower case: not those that a presentation alone names.
    pub listed: BTreeSet<String>,
}

impl PoolPresentations {
    pub fn new(board: &PresentationBoard, pool: PoolId) -> Self {
        Self { board: board.clone(), pool, served: RefCell::default() }
    }

    /// True if a target is that of one presentation alone, and none of the site's.
    pub fn has_own_target(&self, target: &str) -> bool {
        let all = self.board.of_pool(self.pool);
        all.iter().any(|one| one.has_own_target && one.target_name() == name_of(target))
    }

    /// As of the last change of what is served.
    pub fn served(&self) -> ServedPresentations {
        self.served.borrow().clone()
    }

    /// The pool serves them so from now on.
    pub fn note_served(&self, served: ServedPresentations) {
        *self.served.borrow_mut() = served;
    }

    /// The exports that are wanted, and what is presented at a time in seconds since 1970.
    pub fn with_presented(
        &self,
        pool: &Pool,
        wanted: WantedExports,
        unix_s: i64,
    ) -> (WantedExports, ServedPresentations) {
        let mut all = wanted;
        // Without a list of initiators, the site is not served yet.
        if all.access.is_open("") {
            return (all, ServedPresentations::default());
        }
        let listed: BTreeSet<String> = all.access.listed().map(|(name, _)| name.to_owned()).collect();
        let mut problems = PresentationProblems::new();
        let is_due = |one: &&Arc<Presentation>| {
            one.is_open_at(unix_s)
                || (planted::is_in_presenting(PresentBug::ServedAfterItsTime)
                    && one.stage == PresentationStage::Presented)
        };
        let due: Vec<Arc<Presentation>> =
            self.board.of_pool(self.pool).into_iter().filter(|one| is_due(&one)).collect();
        // A pool may have thousands.
        let volumes = if due.is_empty() { Vec::new() } else { pool.volumes() };
        for one in &due {
            if let Err(problem) = add(&mut all, one, &listed, || meant_by(one, pool, &volumes)) {
                problems.insert(one.id, problem);
            }
        }
        (all, ServedPresentations { problems: Arc::new(problems), listed })
    }
}

/// The volume or point presented, as `VOLUME` or `VOLUME@POINT`; `None` if it is not there.
fn meant_by(one: &Presentation, pool: &Pool, volumes: &[VolumeInfo]) -> Option<String> {
    let name = |id| volumes.iter().find(|info| info.volume == id).map(|info| info.name.clone());
    if let Some(clone) = one.clone_id() {
        return name(clone);
    }
    let volume = name(one.volume_id())?;
    let points = pool.snapshots(one.volume_id()).ok()?;
    let point = points.into_iter().find(|point| point.snapshot == one.snapshot_id())?;
    Some(format!("{volume}@{}", point.name))
}

/// Adds the unit of a presentation, and the right of its initiator.
fn add(
    all: &mut WantedExports,
    one: &Presentation,
    listed: &BTreeSet<String>,
    meant: impl FnOnce() -> Option<String>,
) -> Result<(), PresentationProblem> {
    let problem = |text: String| PresentationProblem { text, is_gone: false };
    let volume = meant().ok_or_else(|| PresentationProblem {
        text: format!("{} is not there any more", one.path),
        is_gone: true,
    })?;
    if one.is_listed && !listed.contains(&one.initiator) {
        return Err(problem(format!("the site does not list initiator {} any more", one.initiator)));
    }
    let full = one.target_name();
    let unit = WantedUnit {
        number: one.number,
        volume,
        is_read_only: one.clone.is_none(),
        is_shared: false,
        write_cache: None,
    };
    let target = &one.target;
    let known = all.targets.iter_mut().find(|known| name_of(&known.name) == full);
    match (known, one.has_own_target) {
        (Some(_), true) => return Err(problem(format!("the site has a target {target} by now"))),
        (None, true) => all.targets.push(WantedTarget { name: target.clone(), units: vec![unit] }),
        (None, false) => return Err(problem(format!("the site has no target {target} any more"))),
        (Some(_), false) if all.access.is_open(&full) => {
            return Err(problem(format!("every initiator may use target {target} by now")));
        }
        (Some(known), false) => {
            if known.units.iter().any(|unit| unit.number == one.number) {
                return Err(problem(format!("unit {target}/{} is another one by now", one.number)));
            }
            known.units.push(unit);
        }
    }
    let right = [(one.number, one.right())].into();
    let rights = InitiatorRights { credentials: None, units: [(full, right)].into() };
    all.access = all.access.with_added([(one.initiator.clone(), rights)], [], None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presenting::PresentedClone;
    use iscsi::{
        session::chap::{Credentials, Secret},
        target::access::{AccessList, AccessRight},
    };

    const HOST: &str = "iqn.x:backup1";

    fn presentation() -> Presentation {
        Presentation {
            id: [1; 16],
            pool: [2; 16],
            volume: [3; 16],
            snapshot: [4; 16],
            path: "mail/store@monday".to_owned(),
            initiator: HOST.to_owned(),
            is_listed: true,
            target: "presented-store-monday.01010101".to_owned(),
            has_own_target: true,
            number: 0,
            clone: None,
            began_unix_s: 0,
            ends_unix_s: 100,
            stage: PresentationStage::Presented,
            is_warned: false,
        }
    }

    /// A site with a target that one other host uses, and the backup host, which has CHAP.
    fn site() -> WantedExports {
        let secret = Secret::new("twelve bytes").unwrap();
        let chap = Some(Credentials { name: "backup1".to_owned(), secret });
        let units = [(name_of("disks"), [(0, AccessRight::Write)].into())].into();
        let named = [
            ("iqn.x:mail1".to_owned(), InitiatorRights { credentials: None, units }),
            (HOST.to_owned(), InitiatorRights { credentials: chap, units: BTreeMap::new() }),
        ];
        let (volume, write_cache) = ("store".to_owned(), None);
        let unit = WantedUnit { number: 0, volume, is_read_only: false, is_shared: false, write_cache };
        WantedExports {
            nbd: Vec::new(),
            targets: vec![WantedTarget { name: "disks".to_owned(), units: vec![unit] }],
            access: AccessList::only(named, None).unwrap(),
        }
    }

    fn added(one: &Presentation, site: WantedExports) -> Result<WantedExports, String> {
        let listed = site.access.listed().map(|(name, _)| name.to_owned()).collect();
        let mut all = site;
        let done = add(&mut all, one, &listed, || Some("store@monday".to_owned()));
        done.map(|()| all).map_err(|problem| problem.text)
    }

    #[test]
    fn one_initiator_alone_gets_the_right_and_keeps_its_secret() {
        let one = presentation();
        let all = added(&one, site()).unwrap();
        let right = |host: &str| all.access.right(host, &one.target_name(), 0);
        assert_eq!((right(HOST), right("iqn.x:mail1")), (Some(AccessRight::Read), None));
        assert!(all.access.credentials_of(HOST).is_some() && !all.access.is_open(&one.target_name()));
        assert!(all.targets[1].units[0].is_read_only);
        let clone = Some(PresentedClone { name: "try".to_owned(), is_kept: false });
        let one = Presentation { clone, ..one };
        let all = added(&one, site()).unwrap();
        assert_eq!(all.access.right(HOST, &one.target_name(), 0), Some(AccessRight::Write));
        assert_ne!(one.identity(), presentation().identity());
    }

    #[test]
    fn an_initiator_whose_row_has_gone_gets_nothing_without_its_secret() {
        let mut site = site();
        site.access = AccessList::only([], None).unwrap();
        let one = presentation();
        assert_eq!(
            added(&one, site.clone()).unwrap_err(),
            "the site does not list initiator iqn.x:backup1 any more"
        );
        // One that was named for this alone has no secret.
        let all = added(&Presentation { is_listed: false, ..one.clone() }, site).unwrap();
        assert_eq!(all.access.right(HOST, &one.target_name(), 0), Some(AccessRight::Read));
    }

    #[test]
    fn another_presentation_to_a_name_does_not_list_it() {
        let (mut all, listed) = (site(), BTreeSet::new());
        all.access = AccessList::only([], None).unwrap();
        let meant = || Some("store@monday".to_owned());
        let free = Presentation { is_listed: false, ..presentation() };
        add(&mut all, &free, &listed, meant).unwrap();
        let bound = Presentation { id: [9; 16], target: "other".to_owned(), ..presentation() };
        let problem = add(&mut all, &bound, &listed, meant).unwrap_err();
        assert_eq!(problem.text, "the site does not list initiator iqn.x:backup1 any more");
    }

    #[test]
    fn a_unit_of_the_sites_target_is_added_where_its_number_is_free_and_the_target_is_not_open() {
        let one = Presentation { target: "disks".to_owned(), has_own_target: false, ..presentation() };
        assert_eq!(added(&one, site()).unwrap_err(), "unit disks/0 is another one by now");
        let one = Presentation { number: 5, ..one };
        let all = added(&one, site()).unwrap();
        let right = |number| all.access.right("iqn.x:mail1", &name_of("disks"), number);
        assert_eq!((right(0), right(5)), (Some(AccessRight::Write), None));
        let mut open = site();
        open.access = open.access.with_open([name_of("disks")]);
        assert_eq!(added(&one, open).unwrap_err(), "every initiator may use target disks by now");
        let mut gone = site();
        gone.targets.clear();
        assert_eq!(added(&one, gone).unwrap_err(), "the site has no target disks any more");
    }

    #[test]
    fn at_its_time_a_presentation_is_over() {
        let one = presentation();
        assert!(one.is_open_at(99) && !one.is_open_at(100));
        let stage = PresentationStage::Beginning;
        assert!(!Presentation { stage, ..one }.is_open_at(0));
    }
}
