//! The flow of a set whose volumes lie in a DR group: it stands aside where the group is not primary, and takes the set over
//! where it has become so.
//!
//! Invariants:
//!
//! 1. Standing aside it opens no catalogue but to read it, cuts nothing, deletes nothing, and has nothing verified but what the
//!    other site asked for.
//! 2. That it follows is in the journal before it says so. So a keeper that comes after it is a successor, whatever crashes.
//! 3. It takes over with the identity that the points have, before anything else is done with the set.

use super::{
    keeper::{FlowWake, GENERATOR, NOT_KEPT, SetFlow},
    points::point_id,
    served_set::{SetOrderRefusal, SetReplication, SetRequest, SetRole},
    standing::replication_of,
};
use crate::planted::{self, FollowBug};
use protect::{
    catalogue::{
        BackupCatalogue, CatalogueExtract, CatalogueFileError, CatalogueScope, MachineTime, RebuiltSet,
        SetId, file,
    },
    retention::KeepReason,
    set_keeper::{BackupPools, PredecessorSite, SetKeeper, SetView, collect_backups},
};
use report::Refusal;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use world::{Moment, with_deadline};

/// Interval of looking whether the set is to be kept here.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of looking at the points that travelled.
const POINTS_EVERY: Duration = Duration::from_secs(10);
/// Time for the other site to say that its catalogue is at rest, after a failover.
const REST_WITHIN: Duration = Duration::from_secs(5);

impl SetFlow {
    /// The set by the DR groups of its volumes, as of now.
    pub(super) fn replication(&self) -> Option<SetReplication> {
        replication_of(&self.around.site.look(), &self.settings.borrow(), &self.around.memory)
    }

    pub(super) fn stands_aside(&self) -> Option<SetReplication> {
        self.replication().filter(|replication| replication.role != SetRole::Keeps)
    }

    /// Waits as [`wake`](Self::wake) does, and ends early if the set is not to be kept here any more, or the other site told
    /// what was awaited.
    pub(super) async fn wake_while_kept(&mut self, wait: Duration) -> FlowWake {
        let until = self.around.world.now() + wait;
        loop {
            let left = until.since(self.around.world.now());
            let Some(replication) = self.replication() else { return self.wake(left).await };
            self.around.board.show_told(&self.name, replication.told);
            match self.wake(left.min(LOOK_EVERY)).await {
                FlowWake::Time if self.around.world.now() < until && !self.has_news() => {}
                wake => return wake,
            }
        }
    }

    fn has_news(&self) -> bool {
        self.stands_aside().is_some()
            || self.around.memory.of(&self.name).seen_catalogue().is_some()
            || self.has_news_of_replica()
    }

    /// Returns once the set is to be kept here; false if the flow is to end.
    pub(super) async fn stand_aside(&mut self) -> bool {
        let mut shown: Option<SetReplication> = None;
        let mut looked_at: Option<Moment> = None;
        while let Some(mut replication) = self.stands_aside() {
            let is_new = shown.as_ref().is_none_or(|shown| shown.text != replication.text);
            if is_new {
                self.begin_aside(&replication);
            }
            let now = self.around.world.now();
            let is_due = looked_at.is_none_or(|last| now.since(last) >= POINTS_EVERY);
            let is_told = shown
                .as_ref()
                .is_none_or(|shown| shown.told != replication.told || shown.asked != replication.asked);
            if replication.role == SetRole::Follows && (is_new || is_due || is_told) {
                looked_at = Some(now);
                let stopping = self.stopping();
                let listing = Box::pin(self.list_followed(&mut replication));
                let Some(view) = with_deadline(stopping, listing).await else { return false };
                self.around.board.show_aside(&self.name, Some(view), replication.clone());
                shown = Some(replication);
            } else if is_new {
                self.around.board.show_aside(&self.name, None, replication.clone());
                shown = Some(replication);
            }
            match self.wake(LOOK_EVERY).await {
                FlowWake::Time => {}
                FlowWake::Settings => {
                    let settings = self.settings.borrow_and_update().clone();
                    self.pools.set_pools(settings.pools().into_iter().map(str::to_owned).collect());
                    shown = None;
                }
                FlowWake::Stop => return false,
                FlowWake::Request(request) => match self.take_result(request) {
                    Some(request) => self.refuse_aside(request),
                    // The verdict is shown at once.
                    None => looked_at = None,
                },
            }
        }
        true
    }

    /// One line about an order that is not followed here: what, why, and where to give it.
    pub(super) fn refuse_aside(&self, request: SetRequest) {
        let (why, next) = match self.stands_aside() {
            Some(aside) => (aside.text.clone(), aside.next()),
            None => ("it is being taken over".to_owned(), "try again".to_owned()),
        };
        let refusal = Refusal::new(format!("set {} is not kept here: {why}", self.name), next);
        request.refuse(SetOrderRefusal::Refused(refusal));
    }

    /// Says why the set is not kept here, and notes that it follows.
    fn begin_aside(&self, replication: &SetReplication) {
        let (notices, set) = (&self.around.notices, &self.name);
        self.around.clear_all(set);
        match replication.role {
            SetRole::Divided => self.raise(NOT_KEPT, &replication.text),
            SetRole::Follows => {
                notices.note(format!("set {set}: {}; its backups come from there", replication.text));
                let has_catalogue = self.read_catalogue().is_some();
                let followed = self.around.memory.change(set, |record| {
                    record.is_following = true;
                    record.awaited = None;
                    if has_catalogue {
                        record.own_turn = record.own_turn.max(1);
                    }
                });
                if let Err(error) = followed {
                    notices.warn(format!("set {set}: that it follows is not noted: {}", error.refusal()));
                }
            }
            SetRole::Waits => notices.note(format!("set {set}: {}", replication.text)),
            SetRole::Keeps => {}
        }
    }

    /// The backups as this site sees them, and the extract for the other one.
    async fn list_followed(&mut self, replication: &mut SetReplication) -> SetView {
        let found = self.points_that_travelled(replication.told.as_deref()).await;
        let here = found.iter().flat_map(|found| found.backups.iter().map(|backup| backup.backup)).collect();
        let turn = self.around.memory.of(&self.name).own_turn;
        replication.extract = Some(Arc::new(match self.read_catalogue() {
            Some(catalogue) => CatalogueExtract::of(&catalogue, (turn, true), here),
            None => CatalogueExtract::without_catalogue(&self.name, turn, here),
        }));
        let mut view = SetView::of_follower(&self.name, found.as_ref(), replication.told.as_deref());
        self.note_held(&mut view);
        self.show_asked(found.as_ref(), replication, view)
    }

    /// Notes the backups that the other site has deleted, and that stay here since they are locked.
    fn note_held(&self, view: &mut SetView) {
        let site = self.around.site.look();
        let pools: Vec<_> = site.pools.values().filter_map(|pool| pool.view()).collect();
        let held = pools.iter().flat_map(|pool| &pool.dr.groups).flat_map(|group| &group.report.held);
        let held: BTreeMap<String, Option<i64>> =
            held.map(|held| (point_id(held.volume, held.snapshot), held.until_unix_s)).collect();
        let now_s = self.around.world.wall().seconds;
        for backup in &mut view.backups {
            if let Some(until_s) = backup.points.iter().find_map(|point| held.get(&point.id)) {
                backup.stays.extend(backup.holds.iter().cloned().map(KeepReason::Hold));
                let left_s = until_s.map(|until_s| (until_s - now_s).max(0));
                backup.stays.push(KeepReason::HeldAgainstSite { left_s });
            }
        }
    }

    async fn points_that_travelled(&self, told: Option<&CatalogueExtract>) -> Option<RebuiltSet> {
        let world = &self.around.world;
        let told = told.and_then(|told| told.id.clone());
        let known = match told {
            Some(id) => collect_backups(world, &self.name, &self.pools, (Some(id), None)).await.ok(),
            None => None,
        };
        match known {
            Some(known) => Some(known),
            None => collect_backups(world, &self.name, &self.pools, (None, None)).await.ok(),
        }
    }

    /// This site's catalogue, if it has one that can be read.
    fn read_catalogue(&self) -> Option<BackupCatalogue> {
        let opened = self.around.files.open(&self.name).ok()?;
        file::read(&*opened, CatalogueScope::Live).ok()?.map(|read| read.catalogue)
    }

    /// Takes the set over if another site kept it before, with a catalogue that has the identity of its points. Returns the
    /// reason if that is not possible now.
    pub(super) async fn prepare_succession(&mut self) -> Result<(), String> {
        let is_following = self.around.memory.of(&self.name).is_following;
        if !is_following || planted::is_in_following(FollowBug::SuccessionForgotten) {
            return Ok(());
        }
        let until = self.around.world.now() + REST_WITHIN;
        while self.around.memory.of(&self.name).told_at_rest().is_none() && self.around.world.now() < until {
            self.around.world.sleep(Duration::from_millis(250)).await;
        }
        let told = self.around.memory.of(&self.name).told;
        let present = self.read_catalogue();
        let nobodys = SetId::new(0);
        let own = present.as_ref().map_or(&nobodys, |present| &present.header().id);
        let answer = self.pools.points(own).await;
        if let Some((pool, why)) = answer.silent.iter().next() {
            return Err(format!(
                "pool {pool} does not answer ({why}), and the set was kept by another site before"
            ));
        }
        // Backups of its own are not given up for others'; comparing says that there are such.
        let has_own =
            !answer.found.is_empty() || present.as_ref().is_some_and(|own| own.live().next().is_some());
        if has_own {
            return Ok(());
        }
        let others: Vec<&String> = answer.of_others.keys().collect();
        let told_id = told.and_then(|told| told.id.clone());
        let id = match (&told_id, &others[..]) {
            (Some(told), others) if others.is_empty() || others.contains(&&told.to_string()) => told.clone(),
            (_, [one]) => SetId::try_from((*one).clone())?,
            (_, []) => return Ok(()),
            (_, several) => {
                return Err(format!(
                    "the points are of {} catalogues, and none is here; make one again: 'spindle protect rebuild {}'",
                    several.len(),
                    self.name
                ));
            }
        };
        if present.as_ref().is_some_and(|present| present.header().id == id) {
            return Ok(());
        }
        let now = MachineTime::of(&self.around.world);
        self.around.files.keep_copy(&self.name, now.civil).map_err(|error| error.to_string())?;
        let opened = self.around.files.open(&self.name).map_err(|error| error.to_string())?;
        let set = self.name.clone();
        let empty = RebuiltSet { set, id, backups: Vec::new(), incomplete: Vec::new() };
        let written = empty.write(opened, GENERATOR, "spindle serve", &now);
        written.map(drop).map_err(|error| error.to_string())
    }

    /// Brings an open keeper to where the site before it was. The inner error is the reason if a pool does not answer.
    pub(super) async fn succeed(
        &self,
        keeper: &mut SetKeeper,
    ) -> Result<Result<(), String>, CatalogueFileError> {
        let (memory, record) = (&self.around.memory, self.around.memory.of(&self.name));
        let told = record.told.as_deref();
        let is_successor = record.is_following && !planted::is_in_following(FollowBug::SuccessionForgotten);
        if !is_successor {
            return Ok(Ok(()));
        }
        // Its group may have been removed meanwhile.
        let sites = self.replication().map(|replication| replication.sites);
        let site = sites.as_deref().unwrap_or("the other site");
        let is_final = record.told_at_rest().is_some();
        if let Err(why) = keeper.take_over(PredecessorSite { name: site, told, is_final }).await? {
            return Ok(Err(why));
        }
        let noted = memory.change(&self.name, |record| {
            record.own_turn = record.next_turn();
            record.is_following = false;
            record.awaited = (!is_final).then(|| site.to_owned());
        });
        Ok(noted.map_err(|error| error.refusal().to_string()))
    }

    /// Notes what another site's catalogue has, once it was seen at rest after this site took over.
    pub(super) fn learn_of_predecessor(&self, keeper: &mut SetKeeper) -> Result<(), CatalogueFileError> {
        let record = self.around.memory.of(&self.name);
        let Some((site, told)) = record.seen_catalogue() else { return Ok(()) };
        keeper.learn(site, told, true)?;
        let turn = told.turn;
        let noted = self.around.memory.change(&self.name, |record| {
            record.awaited = None;
            record.own_turn = record.own_turn.max(turn + 1);
        });
        if let Err(error) = noted {
            self.around.notices.warn(format!("set {}: {}", self.name, error.refusal()));
        }
        Ok(())
    }

    /// Shows that this site keeps the set, and what its catalogue has.
    pub(super) fn show_kept(&mut self, keeper: &SetKeeper) {
        let mut replication = self.replication();
        if let Some(replication) = &mut replication {
            let catalogue = keeper.catalogue();
            let here = catalogue.live().map(|(number, _)| number).collect();
            let turn = self.around.memory.of(&self.name).own_turn.max(1);
            replication.extract = Some(Arc::new(CatalogueExtract::of(catalogue, (turn, false), here)));
            replication.wanted = self.wanted_verification(keeper);
        }
        self.around.board.show_replication(&self.name, replication);
    }
}
