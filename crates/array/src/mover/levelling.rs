//! Levelling: slots are moved from fuller drives to emptier ones, until all are about equally full.
//!
//! 1. Sealed segments move slot for slot (`copying`), as when a drive is emptied: the new copy is written, stable
//!    and in the row before the old slot is given up, and that becomes free when a checkpoint without it is
//!    complete and its readers are done. No segment ever has fewer copies.
//! 2. The plan follows from the rows alone (`level_plan`, which also says why it ends). Nothing is stored: after
//!    a crash the next opening plans again.
//! 3. Missing copies and drives that leave come first. Leaving drives give nothing and get nothing.
//! 4. Copies across failure sets are moved into one first (`gathering`), and copies that share a failure domain apart
//!    (`separation`); no move puts copies into more sets or into fewer domains. Drives are levelled within each set.
//! 5. A move takes no slot that hosts could need: free room is plenty, or as many segments can be allocated
//!    without the slot.

use super::{
    DriveFill, Mover,
    copying::{CopyGoal, CopyJob},
    emptying::EmptyingProblem,
    level_plan::{LevelPlan, SlotUse},
    separation::keeps_apart,
};
use crate::{
    engine::{
        Purpose,
        events::{BackgroundTask, EventKind, LevellingOutcome},
        spawn_repeated,
    },
    error::Result,
    format::{
        MemberIndex, SegmentNumber, SetNumber, SlotAddress,
        checksum::mix,
        row::{SegmentRow, SegmentState},
    },
    redundancy::{Reconstruction, SegmentLayout},
    segments::Segments,
    simulation::sometimes::{self, Sometimes, UnderWay},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    time::Duration,
};
use world::Moment;

/// Slots of one round: a checkpoint follows, and other work has its turn.
const ROUND_SLOTS: usize = 128;
/// Rounds without a copy, after which the rest is left for later.
const FRUITLESS_ROUNDS_MAX: u32 = 3;
/// Attempts to write on in segments that lie in one failure set and in different domains.
const CLOSINGS_MAX: u32 = 3;
/// Pause before the drives are compared again.
const LEVEL_AGAIN: Duration = Duration::from_secs(60);
/// Segments among which those of a round are chosen, for each drive.
const CANDIDATES_MAX: usize = 8 * ROUND_SLOTS;
/// Multiple of the room near which hosts are delayed: with more, a move may take any slot.
const PLENTY_NEAR: u64 = 4;

/// Segments of which slots can move, by the drive of the slot; those to be moved first are last.
type Movable<'s> = BTreeMap<MemberIndex, Vec<(SegmentNumber, &'s SegmentRow)>>;

impl Mover {
    /// Levels the drives now, and returns when the moves are durable. The pool also does this in the background, if
    /// they differ much.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub async fn level(self: &Rc<Self>) -> Result<LevellingOutcome> {
        // The task continues if the caller is dropped: a write into a slot must not outlive the levelling.
        let mover = Rc::clone(self);
        self.levelling_held.set(None);
        self.shared.world.spawn("levelling", async move { mover.level_all().await }).await
    }

    /// The drives that are present, and how full they are.
    pub fn fills(&self) -> Vec<DriveFill> {
        let shared = &self.shared;
        let slot_bytes = u64::from(shared.drives.geometry().slot_bytes);
        let state = shared.state.borrow();
        let fill = |member: MemberIndex| {
            let (slots, used) = state.segments.slots_of(member);
            DriveFill {
                drive: shared.superblock.borrow().members[usize::from(member.0)].drive,
                used_bytes: used * slot_bytes,
                slot_bytes: slots * slot_bytes,
            }
        };
        shared.drives.members().into_iter().map(fill).collect()
    }

    /// Bytes that levelling has moved since the pool was opened, on request and in the background.
    pub fn levelled_bytes(&self) -> u64 {
        self.levelled_slots.get() * u64::from(self.shared.drives.geometry().slot_bytes)
    }

    /// True if the drives differ so much that the pool levels them by itself. Reads the rows of all segments.
    pub fn is_uneven(&self) -> bool {
        self.level_plans().iter().any(LevelPlan::is_uneven)
    }

    /// Counts what is left to do.
    pub(super) fn count_unlevel(&self) {
        if self.levelling_job.progress().is_running {
            let slot_bytes = u64::from(self.shared.drives.geometry().slot_bytes);
            self.levelling_job.set_lacking(self.slots_to_move() * slot_bytes);
        }
    }

    /// Starts the background task if the drives differ much, unless it runs. To be called when no copy is missing,
    /// after an opening or a change of drives.
    pub(crate) fn begin_levelling(&self) {
        let is_wanted = self.differ_much() || self.shared.misplaced_segments() > 0;
        let this = self.this.upgrade().filter(|_| is_wanted);
        if let Some(this) = this
            && !self.is_levelling.replace(true)
        {
            let level = async |mover: &Self| mover.level_some().await;
            spawn_repeated(("array levelling", BackgroundTask::Levelling), &this, level);
        }
        self.shared.wakes.wake(BackgroundTask::Levelling);
    }

    /// True if other work of the mover comes first.
    pub(super) fn is_levelling_postponed(&self) -> bool {
        let is_emptying = !self.shared.drives.leaving_members().is_empty()
            && !matches!(self.emptying_problem(), Some(EmptyingProblem::TooFewDrives { .. }));
        is_emptying || self.may_lack_copies() && self.degraded().segments > 0
    }

    /// Levels the drives if they differ much. Returns the moment at which they are compared again.
    pub(super) async fn level_some(&self) -> Result<Option<Moment>> {
        let now = self.shared.world.now();
        // Levelling that was cancelled waits for a drive to come or go.
        let is_held = self.levelling_held.get() == Some(self.shared.drives.changes());
        let is_wanted = || self.differ_much() || self.shared.misplaced_segments() > 0;
        if is_held || self.is_levelling_postponed() || !is_wanted() {
            return Ok(None);
        }
        if now < self.levelling_again_at.get() {
            return Ok(Some(self.levelling_again_at.get()));
        }
        if self.is_uneven() || self.shared.misplaced_segments() > 0 {
            let levelled = self.level_all().await;
            self.shared.report_outcome(BackgroundTask::Levelling, &levelled)?;
        }
        self.levelling_again_at.set(self.shared.world.now() + LEVEL_AGAIN);
        Ok(Some(self.levelling_again_at.get()))
    }

    /// As [`Self::is_uneven`], from counters: slots that wait to become free count as used.
    fn differ_much(&self) -> bool {
        let state = self.shared.state.borrow();
        self.plans_with(|member| state.segments.slots_of(member).1).iter().any(LevelPlan::is_uneven)
    }

    /// A plan for each failure set: one move cannot bring a segment into another one.
    fn level_plans(&self) -> Vec<LevelPlan> {
        let named = self.shared.state.borrow().segments.named_slots();
        self.plans_with(|member| named.get(&member).copied().unwrap_or(0))
    }

    fn plans_with(&self, named: impl Fn(MemberIndex) -> u64) -> Vec<LevelPlan> {
        let (drives, sets) = (&self.shared.drives, self.shared.drives.sets());
        let state = self.shared.state.borrow();
        let slot_use = |member: MemberIndex| SlotUse {
            member,
            slots: state.segments.slots_of(member).0,
            named: named(member),
            is_target: drives.has_space(member),
        };
        let mut of_sets: BTreeMap<Option<SetNumber>, Vec<SlotUse>> = BTreeMap::new();
        for member in drives.staying_members() {
            of_sets.entry(sets.of_drive(member)).or_default().push(slot_use(member));
        }
        of_sets.into_values().map(LevelPlan::new).collect()
    }

    /// True if the drives are about equally full, and no segment lies in one failure domain or across failure sets.
    fn is_level(&self) -> bool {
        self.level_plans().iter().all(LevelPlan::is_level) && self.shared.misplaced_segments() == 0
    }

    /// Slots to move, if no segment stands in the way.
    fn slots_to_move(&self) -> u64 {
        let lacking: u64 = self.level_plans().iter().map(LevelPlan::lacking_slots).sum();
        lacking.max(self.shared.misplaced_segments())
    }

    /// As [`Self::level`]. The future must not be dropped before it ends.
    async fn level_all(&self) -> Result<LevellingOutcome> {
        let _one_at_a_time = self.levelling.lock().await;
        let _running = self.levelling_job.begin();
        let under_way = UnderWay::begin(Sometimes::CutWhileLevelling);
        let slot_bytes = u64::from(self.shared.drives.geometry().slot_bytes);
        let (mut moved_slots, mut fruitless_rounds, mut has_begun) = (0, 0, false);
        let (mut may_place, mut closings) = (true, 0);
        let outcome = loop {
            self.shared.check_runs()?;
            self.count_unlevel();
            if self.levelling_job.is_cancelled() || self.throttle.is_closed() {
                break LevellingOutcome::Cancelled;
            }
            if self.is_levelling_postponed() {
                sometimes::reached(Sometimes::LevellingPostponed);
                break LevellingOutcome::Postponed;
            }
            if !has_begun && self.is_level() {
                break LevellingOutcome::Level;
            }
            // Held while the plan is made, too: a rebuild or an emptying changes slots until it is.
            let no_rebuild = self.rebuilding.lock().await;
            let (to_place, gathered) = if may_place { self.to_place_better() } else { Default::default() };
            if to_place.is_empty() && closings < CLOSINGS_MAX && self.has_misplaced_open_segments() {
                closings += 1;
                drop(no_rebuild);
                self.close_misplaced_segments().await?;
                continue;
            }
            may_place = !to_place.is_empty();
            let jobs = if may_place { to_place } else { self.to_level() };
            if jobs.is_empty() || fruitless_rounds == FRUITLESS_ROUNDS_MAX {
                break if self.is_level() { LevellingOutcome::Level } else { LevellingOutcome::NoMoveHelps };
            }
            if !std::mem::replace(&mut has_begun, true) {
                let bytes = self.slots_to_move() * slot_bytes;
                self.shared.events.report(EventKind::LevellingStart { bytes });
            }
            let moved = self.copy_all(CopyGoal::Level, jobs).await;
            drop(no_rebuild);
            moved_slots += moved;
            self.levelled_slots.set(self.levelled_slots.get() + moved);
            // Where there is no room to place more of them better, the drives are levelled.
            fruitless_rounds = if moved > 0 || may_place { 0 } else { fruitless_rounds + 1 };
            may_place &= moved > 0;
            sometimes::reached_if(may_place && gathered > 0, Sometimes::CopiesGathered);
            sometimes::reached_if(may_place && gathered == 0, Sometimes::CopiesMovedApart);
            // Moves count from this checkpoint on.
            self.checkpoints.make().await?;
            self.checkpoints.release_held();
        };
        under_way.end();
        if has_begun {
            // The old slots become free.
            self.checkpoints.make().await?;
            self.checkpoints.release_held();
            let moved_bytes = moved_slots * slot_bytes;
            self.shared.events.report(EventKind::LevellingEnd { outcome, moved_bytes });
        }
        if outcome != LevellingOutcome::Cancelled {
            // Nothing more can be moved.
            self.levelling_job.set_lacking(0);
        }
        Ok(outcome)
    }

    /// Slots to move into one failure set, and their number; and slots to move into other failure domains.
    fn to_place_better(&self) -> (VecDeque<CopyJob>, usize) {
        let mut jobs = self.to_gather(ROUND_SLOTS);
        let gathered: BTreeSet<SegmentNumber> = jobs.iter().map(|job| job.number).collect();
        // Two slots of a segment must not move at once.
        let apart = self.to_separate(ROUND_SLOTS).into_iter().filter(|job| !gathered.contains(&job.number));
        jobs.extend(apart);
        (jobs, gathered.len())
    }

    /// The next slots to move: each from the fullest drive that can give one to the emptiest that can get it.
    fn to_level(&self) -> VecDeque<CopyJob> {
        // Two slots of a segment must not move at once.
        let (mut jobs, mut planned) = (VecDeque::new(), BTreeSet::new());
        for plan in self.level_plans().into_iter().filter(|plan| !plan.is_done()) {
            let most = ROUND_SLOTS - jobs.len();
            if most == 0 {
                break;
            }
            let some = self.jobs_to_level(plan.clone(), (most, CANDIDATES_MAX), &mut planned);
            // Perhaps just these have their copies in the way.
            let some = if some.is_empty() {
                self.jobs_to_level(plan, (most, usize::MAX), &mut planned)
            } else {
                some
            };
            jobs.extend(some);
        }
        jobs
    }

    fn jobs_to_level(
        &self,
        mut plan: LevelPlan,
        (most, candidates_max): (usize, usize),
        planned: &mut BTreeSet<SegmentNumber>,
    ) -> VecDeque<CopyJob> {
        let state = self.shared.state.borrow();
        let domains = self.shared.drives.domains();
        let mut movable = self.movable(&state.segments, &plan.sources(), candidates_max);
        let mut jobs = VecDeque::new();
        // Pairs of drives between which nothing can move.
        let mut exhausted = BTreeSet::new();
        while jobs.len() < most && !plan.is_done() {
            let (sources, targets) = (plan.sources(), plan.targets());
            let mut pairs =
                sources.iter().flat_map(|&source| targets.iter().map(move |&target| (source, target)));
            let Some((source, target)) = pairs.find(|pair| !exhausted.contains(pair)) else { break };
            let rows = movable.entry(source).or_default();
            let can_move = |(number, row): &(SegmentNumber, &SegmentRow)| {
                !planned.contains(number) && keeps_apart(row, &domains, (source, target))
            };
            let Some(index) = rows.iter().rposition(can_move) else {
                exhausted.insert((source, target));
                continue;
            };
            let (number, row) = rows.remove(index);
            plan.add(source, target);
            planned.insert(number);
            jobs.push_back(self.job_to_level(number, row, (source, target)));
        }
        jobs
    }

    /// Up to so many sealed segments for each drive that has to give slots. The next checkpoint frees segments
    /// without live data, unless they are pinned.
    fn movable<'s>(&self, segments: &'s Segments, sources: &[MemberIndex], most: usize) -> Movable<'s> {
        let pinned: BTreeSet<SegmentNumber> = self.shared.subscribers.pins.segments();
        let count = segments.iter().count().max(1);
        // Another part of them in each round.
        let first = mix(segments.use_next().0) as usize % count;
        let mut movable = Movable::new();
        for (number, row) in segments.iter().skip(first).chain(segments.iter().take(first)) {
            let is_needed = row.live_grains > 0 || pinned.contains(&number);
            if row.state != SegmentState::Sealed || !is_needed {
                continue;
            }
            for slot in row.slots.iter().filter(|slot| sources.contains(&slot.member)) {
                let rows = movable.entry(slot.member).or_default();
                if rows.len() < most {
                    rows.push((number, row));
                }
            }
            if movable.len() == sources.len() && movable.values().all(|rows| rows.len() == most) {
                break;
            }
        }
        for rows in movable.values_mut() {
            // Cold segments first: a hot one becomes free by itself. At random among equals: what was written
            // together is read together, and should not share a drive.
            rows.sort_by_key(|(number, row)| (segments.is_cold(*number), mix(row.segment_use.0)));
        }
        movable
    }

    pub(super) fn job_to_level(
        &self,
        number: SegmentNumber,
        row: &SegmentRow,
        (source, target): (MemberIndex, MemberIndex),
    ) -> CopyJob {
        let index = row.slots.iter().position(|slot| slot.member == source).expect("it was found there");
        let old = row.slots[index];
        let is_kept = |slot: &SlotAddress| *slot != old && self.shared.drives.has(slot.member);
        let kept: Vec<_> = row.slots.iter().copied().filter(is_kept).collect();
        // A raid0 segment of several slots, which nothing allocates, has no copies in its other slots.
        let others = if SegmentLayout::of(row).scheme().is_redundant() { &kept[..] } else { &[] };
        CopyJob {
            goal: CopyGoal::Level,
            number,
            segment_use: row.segment_use,
            plan: Reconstruction::moved(index, [&[old], others].concat()),
            kept,
            replaced: Some(old),
            target: Some(target),
            old_copy: None,
        }
    }

    /// A slot on the planned drive, unless hosts could need it.
    pub(super) fn level_slot_on(&self, target: MemberIndex, kept: &[SlotAddress]) -> Option<SlotAddress> {
        let (drives, space) = (&self.shared.drives, self.shared.space());
        let stays = drives.has_space(target) && !drives.is_leaving(target);
        if !stays || kept.iter().any(|slot| slot.member == target) {
            return None;
        }
        let segments = &mut self.shared.state.borrow_mut().segments;
        let is_plenty = space.free_for(Purpose::Hosts) > PLENTY_NEAR * space.near();
        let members = drives.members_for_new_data();
        if !is_plenty && !segments.can_spare_slot(drives.copies().most(), &members, target) {
            return None;
        }
        segments.allocate_slot_on(target)
    }
}
