//! Beginning and ending presentations, step by step: each step is found as it was left, so work that a crash cut short is undone
//! or done to its end.

use super::{
    board::PresentationBoard,
    presentation::{EndReason, Presentation, PresentationStage, PresentedClone, own_target},
};
use crate::{
    dr::group_clones::free_name,
    journal::JournalError,
    notice::NoticeSender,
    order::OrderRefusal,
    planted::{self, PresentBug},
    pool_thread::ServedPool,
    site::handle::{PoolHandle, SiteHandle},
};
use array::format::{SnapshotId, VolumeId};
use report::{Refusal, RefusalCause};
use serving::{
    export::name_of,
    pool::volume_change::{VolumeChange, perform},
};
use std::rc::Rc;

/// The highest number of a unit (SAM-5, 4.7.7.4).
pub(crate) const UNIT_MAX: u64 = 0x3fff;
/// Time behind its end after which an end was late.
const LATE_SECONDS: i64 = 60;

/// A presentation to begin.
#[derive(Clone, Debug)]
pub(crate) struct NewPresentation {
    /// UUID: the same request, repeated, finds what it had made.
    pub id: [u8; 16],
    pub volume: VolumeId,
    pub snapshot: SnapshotId,
    /// iSCSI name in lower case.
    pub initiator: String,
    /// A target of the site; one of its own if `None`.
    pub target: Option<String>,
    /// The lowest free one if `None`.
    pub number: Option<u64>,
    pub clone: Option<NewPresentedClone>,
    pub began_unix_s: i64,
    pub ends_unix_s: i64,
}

/// A clone to present.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewPresentedClone {
    /// One that says what it is if `None`.
    pub name: Option<String>,
    pub is_kept: bool,
}

/// The end of a presentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PresentationEnd {
    /// Hosts whose sessions ended.
    pub hosts: Vec<String>,
    /// The fate of its clone, in words; empty without one.
    pub clone: String,
    /// The clone stays, although it was not to.
    pub is_left: bool,
}

/// The reason for which a step was not done.
#[derive(Debug)]
pub(crate) enum PresentationFailure {
    Refused(Refusal),
    /// Another flow works on it.
    Busy,
    Journal(JournalError),
    Order(OrderRefusal),
}

impl From<Refusal> for PresentationFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<JournalError> for PresentationFailure {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl From<OrderRefusal> for PresentationFailure {
    fn from(refusal: OrderRefusal) -> Self {
        Self::Order(refusal)
    }
}

impl PresentationFailure {
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal.clone(),
            Self::Busy => Refusal::new("the server works on this presentation", "try again in a moment"),
            Self::Journal(error) => error.refusal(),
            Self::Order(refusal) => Refusal::new(refusal.to_string(), "try again when the pool is open"),
        }
    }
}

/// Begins and ends presentations, on any thread.
#[derive(Clone)]
pub(crate) struct Presenter {
    pub site: SiteHandle,
    pub board: PresentationBoard,
    pub notices: NoticeSender,
}

impl Presenter {
    /// Presents a point, or finds that the same request has done it.
    ///
    /// # Errors
    ///
    /// There is no such point, the unit or the clone's name is taken, or the pool refuses: nothing was made.
    pub async fn begin(
        &self,
        pool: &PoolHandle,
        new: NewPresentation,
    ) -> Result<Presentation, PresentationFailure> {
        let _work = self.board.begin_work(new.id).ok_or(PresentationFailure::Busy)?;
        if let Some(known) = self.board.get(new.id)
            && known.stage == PresentationStage::Presented
        {
            return Ok((*known).clone());
        }
        let name = pool.name.clone();
        let planned = pool.begin("plan presentation", move |served| {
            Box::pin(async move { planned(&served, &name, new) })
        })?;
        let beginning = planned.await??;
        self.board.put(&beginning)?;
        match self.serve(pool, &beginning).await {
            Ok(presented) => {
                self.notices.of(&pool.name).occurred("presented", presented.words());
                Ok(presented)
            }
            Err(failure) => {
                self.undo_in(pool, &beginning).await?;
                Err(failure)
            }
        }
    }

    /// Makes the clone, records that the presentation is served, and serves it.
    async fn serve(
        &self,
        pool: &PoolHandle,
        beginning: &Presentation,
    ) -> Result<Presentation, PresentationFailure> {
        let one = beginning.clone();
        let made = pool.begin("clone for presentation", move |served| {
            Box::pin(async move { make_clone(&served, &one).await })
        })?;
        made.await??;
        let presented = Presentation { stage: PresentationStage::Presented, ..beginning.clone() };
        self.board.put(&presented)?;
        let id = presented.id;
        let serving = pool.begin("serve presentation", move |served| {
            Box::pin(async move {
                served.try_serve_again()?;
                match served.presentations.served().problems.get(&id) {
                    Some(problem) => Err(Refusal::new(problem.text.clone(), "look at it, and try again")),
                    None => Ok(served.services_revision()),
                }
            })
        })?;
        // The portal sends hosts to what the view has.
        pool.shows_services(serving.await??).await;
        Ok(presented)
    }

    /// Undoes a presentation that has not begun.
    ///
    /// # Errors
    ///
    /// It is not undone yet, and can be tried again.
    pub async fn undo(&self, pool: &PoolHandle, one: &Presentation) -> Result<(), PresentationFailure> {
        let _work = self.board.begin_work(one.id).ok_or(PresentationFailure::Busy)?;
        match self.board.get(one.id) {
            Some(known) if known.stage == PresentationStage::Beginning => self.undo_in(pool, &known).await,
            _ => Ok(()),
        }
    }

    async fn undo_in(&self, pool: &PoolHandle, one: &Presentation) -> Result<(), PresentationFailure> {
        let clone = one.clone.clone().map(|clone| PresentedClone { is_kept: false, ..clone });
        let stage = PresentationStage::Ending(EndReason::Withdrawn);
        let ending = Presentation { stage, clone, ..one.clone() };
        // Not to be served any more, if it was for a moment.
        self.board.put(&ending)?;
        self.take_away(pool, &ending).await?;
        Ok(self.board.forget(one.id)?)
    }

    /// Ends a presentation: its hosts are logged out, and its clone is removed unless it is to stay. `None` if it had ended.
    ///
    /// # Errors
    ///
    /// It is not served any more, or its pool is not open; the rest is tried again.
    pub async fn end(
        &self,
        id: [u8; 16],
        (reason, unix_s): (EndReason, i64),
        keeps_clone: bool,
    ) -> Result<Option<PresentationEnd>, PresentationFailure> {
        let _work = self.board.begin_work(id).ok_or(PresentationFailure::Busy)?;
        let Some(known) = self.board.get(id) else { return Ok(None) };
        let reason = match known.stage {
            PresentationStage::Ending(first) => first,
            _ => reason,
        };
        let mut ending = Presentation { stage: PresentationStage::Ending(reason), ..(*known).clone() };
        if let Some(clone) = &mut ending.clone {
            clone.is_kept |= keeps_clone;
        }
        if ending != *known
            && let Err(error) = self.board.put(&ending)
        {
            // Its time counts all the same.
            self.serve_again(&ending).await;
            return Err(error.into());
        }
        let site = self.site.look();
        let pool = site.pool_of(ending.pool_id()).filter(|pool| pool.view().is_some()).ok_or_else(|| {
            Refusal::new(
                format!("{}: its pool is not open", ending.path),
                "it ends when the pool is open again; nothing of it is served before",
            )
        })?;
        let end = self.take_away(pool, &ending).await?;
        self.board.forget(id)?;
        let (kind, text) = end_words(&ending, (reason, unix_s), &end);
        self.notices.of(&pool.name).occurred(kind, text);
        Ok(Some(end))
    }

    /// Has the pool look at the clock again.
    async fn serve_again(&self, one: &Presentation) {
        let site = self.site.look();
        let Some(pool) = site.pool_of(one.pool_id()) else { return };
        let serving =
            pool.begin("serve presentations", |served| Box::pin(async move { served.serve_again() }));
        if let Ok(serving) = serving {
            // A pool that has stopped serves nothing.
            let _ = serving.await;
        }
    }

    /// Serves a presentation no more, and removes its clone unless it is to stay.
    async fn take_away(
        &self,
        pool: &PoolHandle,
        ending: &Presentation,
    ) -> Result<PresentationEnd, PresentationFailure> {
        let volumes = self.site.look();
        let of_pool = volumes.site.volumes.iter().filter(|volume| volume.group == pool.name);
        let of_site: Vec<String> = of_pool.map(|volume| volume.name.clone()).collect();
        let ending = ending.clone();
        let taking = pool.begin("end presentation", move |served| {
            Box::pin(async move {
                let end = take_away(&served, &ending, &of_site).await?;
                Ok::<_, Refusal>((end, served.services_revision(), served.pool.catalogue_revision()))
            })
        })?;
        let (end, services, catalogue) = taking.await??;
        // Nobody is to take the clone that is gone for a volume.
        pool.shows_services(services).await;
        pool.shows(catalogue).await;
        Ok(end)
    }
}

/// The words of an end, and the kind of its event.
fn end_words(
    one: &Presentation,
    (reason, unix_s): (EndReason, i64),
    end: &PresentationEnd,
) -> (&'static str, String) {
    let late_s = unix_s.saturating_sub(one.ends_unix_s);
    let why = match reason {
        EndReason::Time if late_s >= LATE_SECONDS => {
            format!("its time was over {} min ago: the server or the pool was down then", late_s / 60)
        }
        EndReason::Time => "its time is over".to_owned(),
        EndReason::Withdrawn => "it was withdrawn".to_owned(),
        EndReason::Gone => "it is not there any more".to_owned(),
    };
    let mut text = format!("{} is not presented to {} any more: {why}", one.path, one.initiator);
    if !end.hosts.is_empty() {
        text += &format!("; logged out: {}", end.hosts.join(", "));
    }
    if !end.clone.is_empty() {
        text += &format!("; {}", end.clone);
    }
    let is_warning = !end.hosts.is_empty() && reason != EndReason::Withdrawn;
    let is_warning = is_warning || end.is_left || reason == EndReason::Gone;
    (if is_warning { "presentation_cut_off" } else { "presentation_ended" }, text)
}

/// The record of a presentation that can begin.
fn planned(served: &ServedPool, pool: &str, new: NewPresentation) -> Result<Presentation, Refusal> {
    let volumes = served.pool.volumes();
    let volume = volumes.iter().find(|info| info.volume == new.volume);
    let points = served.pool.snapshots(new.volume).unwrap_or_default();
    let point = points.into_iter().find(|point| point.snapshot == new.snapshot);
    let (Some(volume), Some(point)) = (volume, point) else {
        return Err(Refusal::new("there is no such point any more", "see 'spindle pool show'"));
    };
    let path = format!("{pool}/{}@{}", volume.name, point.name);
    let open = served.open_exports();
    let taken = |target: &str| -> Vec<u64> {
        let known = open.targets.iter().filter(|known| name_of(&known.name) == name_of(target));
        known.flat_map(|known| known.units.iter().map(|unit| unit.number)).collect()
    };
    let target = match &new.target {
        None => own_target(&volume.name, &point.name, new.id),
        Some(target) => {
            let mut known = open.targets.iter().filter(|known| name_of(&known.name) == name_of(target));
            let known = known.find(|known| !served.presentations.has_own_target(&known.name));
            let known = known.ok_or_else(|| {
                Refusal::new(
                    format!("pool {pool} has no target {target}"),
                    "name a target of the same pool, or leave it out: the host gets one of its own",
                )
            })?;
            if open.access.is_open(&name_of(target)) {
                return Err(Refusal::new(
                    format!("every initiator may use target {target}: all of them would see it"),
                    "leave the target out: the host gets one of its own",
                ));
            }
            known.name.clone()
        }
    };
    let taken = taken(&target);
    let lowest = || (0..=UNIT_MAX).find(|number| !taken.contains(number));
    let number = new
        .number
        .or_else(lowest)
        .ok_or_else(|| Refusal::new(format!("target {target} has no free number"), "name another target"))?;
    if taken.contains(&number) {
        return Err(Refusal::new(
            format!("target {target} has a unit {number}"),
            "leave the number out, or name a free one",
        ));
    }
    let clone = new.clone.map(|wanted| {
        let plain = format!("{}-{}", volume.name, point.name);
        let name = wanted.name.unwrap_or_else(|| free_name(&volumes, &plain, VolumeId(new.id)));
        PresentedClone { name, is_kept: wanted.is_kept }
    });
    Ok(Presentation {
        id: new.id,
        pool: served.pool.id().0,
        volume: new.volume.0,
        snapshot: new.snapshot.0,
        path,
        is_listed: served.presentations.served().listed.contains(&new.initiator),
        initiator: new.initiator,
        target,
        has_own_target: new.target.is_none(),
        number,
        clone,
        began_unix_s: new.began_unix_s,
        ends_unix_s: new.ends_unix_s,
        stage: PresentationStage::Beginning,
        is_warned: false,
    })
}

/// Makes the clone of a presentation, unless an earlier try has made it.
async fn make_clone(served: &Rc<ServedPool>, one: &Presentation) -> Result<(), Refusal> {
    let Some(clone) = &one.clone else { return Ok(()) };
    if served.pool.volumes().iter().any(|info| Some(info.volume) == one.clone_id()) {
        return Ok(());
    }
    let change = VolumeChange::Clone {
        source: one.volume_id().into(),
        snapshot: Some(one.snapshot_id().into()),
        name: clone.name.clone(),
        is_independent: false,
    };
    perform(&change, &served.exports.changeable().with_identity(one.id)).await?;
    served.show_changes();
    Ok(())
}

/// On the pool's thread: ends the sessions, then removes the clone.
async fn take_away(
    served: &Rc<ServedPool>,
    ending: &Presentation,
    of_site: &[String],
) -> Result<PresentationEnd, Refusal> {
    let hosts = ending.hosts_among(&served.sessions());
    served.try_serve_again()?;
    let mut end = PresentationEnd { hosts, ..PresentationEnd::default() };
    let Some(clone) = &ending.clone else { return Ok(end) };
    let found = served.pool.volumes().into_iter().find(|info| Some(info.volume) == ending.clone_id());
    let Some(info) = found else { return Ok(end) };
    let name = &info.name;
    if clone.is_kept {
        end.clone = format!("its clone {name} stays");
        return Ok(end);
    }
    if of_site.contains(name) {
        end.clone = format!("its clone {name} stays: the site has it as a volume");
        return Ok(end);
    }
    if planted::is_in_presenting(PresentBug::CloneLeftBehind) {
        return Ok(end);
    }
    let delete = VolumeChange::Delete { volume: info.volume.into() };
    match perform(&delete, &served.exports.changeable()).await {
        Ok(_) => end.clone = format!("its clone {name} and what was written to it are removed"),
        // It has snapshots, or is served or copied: somebody has other plans with it.
        Err(refusal) if refusal.cause() == RefusalCause::Request => {
            end.clone =
                format!("its clone {name} stays, because it cannot be removed: {}", refusal.problem());
            end.is_left = true;
        }
        Err(refusal) => return Err(refusal),
    }
    served.show_changes();
    Ok(end)
}
