//! Takes cuts while hosts write, and deletes some.

use super::{Chain, CutFate, CutRunError, CutRunPlan, Ledger};
use array::{
    error::Error,
    format::SnapshotId,
    pool::{CutMember, NewSnapshot, Pool},
};
use std::{rc::Rc, time::Duration};
use world::{Random, World, with_deadline};

/// The volume of each pool.
pub const VOLUME: &str = "mail";
/// The group of the volumes of both.
pub const GROUP: &str = "all";

pub struct CutAdministrator {
    pub world: World,
    pub pools: [Rc<Pool>; 2],
    pub plan: Rc<CutRunPlan>,
    pub chains: Rc<Vec<Chain>>,
    pub ledger: Rc<Ledger>,
    pub random: Random,
}

/// The answer that one caller of a cut got.
enum CallerAnswer {
    Taken,
    /// No pool has it.
    Refused,
    /// It may be there or not.
    Unknown,
}

impl CutAdministrator {
    /// Takes the cuts of an incarnation.
    ///
    /// # Errors
    ///
    /// A broken guarantee; or a pool has stopped.
    pub async fn work(mut self) -> Result<(), CutRunError> {
        for _ in 0..self.plan.cuts {
            let pause = Duration::from_micros(1 << self.random.below(12));
            self.world.sleep(pause).await;
            self.cut().await?;
            if self.random.percent(25.0) {
                self.delete().await?;
            }
        }
        Ok(())
    }

    async fn cut(&mut self) -> Result<(), CutRunError> {
        let answered = self.chains.iter().map(Chain::answered).collect();
        let is_of_group = self.random.percent(self.plan.group_percent);
        let (snapshot, name) = self.ledger.begin(answered, is_of_group);
        let mut parts =
            CutMember::of_pools(&[self.pools[0].id(), self.pools[1].id()]).expect("two pools").into_iter();
        let leaves = self.random.percent(self.plan.leaving_percent).then(|| self.random.below(2) as usize);
        let callers = [0, 1].map(|index| {
            let (pool, world) = (Rc::clone(&self.pools[index]), self.world.clone());
            let (name, part) = (name.clone(), parts.next().expect("two parts"));
            let patience = (leaves == Some(index)).then(|| Duration::from_micros(1 << self.random.below(14)));
            let part = async move {
                let new = NewSnapshot { name: &name, snapshot, note: b"" };
                let taken = async {
                    if is_of_group {
                        pool.take_part_in_group_cut(GROUP, &new, part).await
                    } else {
                        pool.take_part_in_cut(&[VOLUME], &new, part).await
                    }
                };
                match patience {
                    None => Some(taken.await),
                    Some(patience) => with_deadline(world.sleep(patience), Box::pin(taken)).await,
                }
            };
            self.world.spawn("part of a cut", part)
        });
        let mut answers = Vec::new();
        for caller in callers {
            answers.push(match caller.await {
                Some(Ok(_)) => CallerAnswer::Taken,
                Some(Err(Error::CutFailed(_))) => CallerAnswer::Refused,
                Some(Err(error)) => {
                    self.ledger.tell(format!("{name}: {error}"));
                    CallerAnswer::Unknown
                }
                None => CallerAnswer::Unknown,
            });
        }
        let fate = fate(&answers);
        let begun: Vec<u64> = self.chains.iter().map(Chain::begun).collect();
        self.ledger.end(snapshot, fate, &begun);
        self.ledger.tell(format!("{name}: {fate:?}"));
        let mut tally = self.ledger.tally.borrow_mut();
        match fate {
            CutFate::Acknowledged => tally.taken += 1,
            CutFate::Refused => tally.refused += 1,
            _ => tally.unsettled += 1,
        }
        Ok(())
    }

    /// Deletes a cut that was acknowledged, in one pool or both.
    async fn delete(&mut self) -> Result<(), CutRunError> {
        let known = self.ledger.all();
        let taken: Vec<(SnapshotId, bool)> = known
            .iter()
            .filter(|(_, cut)| cut.fate == CutFate::Acknowledged)
            .map(|&(snapshot, ref cut)| (snapshot, cut.is_of_group))
            .collect();
        if taken.is_empty() {
            return Ok(());
        }
        let (snapshot, is_of_group) = taken[self.random.below(taken.len() as u64) as usize];
        let both = self.random.percent(50.0);
        let first = self.random.below(2) as usize;
        let mut is_gone = false;
        for pool in [first, 1 - first].into_iter().take(1 + usize::from(both)) {
            // From here on it may be gone, whatever comes in between.
            self.ledger.set_fate(snapshot, CutFate::Deleted);
            let pool = &self.pools[pool];
            let deleted = if is_of_group {
                pool.delete_group_snapshot(GROUP, snapshot).await
            } else {
                pool.delete_snapshot(VOLUME, snapshot).await
            };
            match deleted {
                Ok(()) => is_gone = true,
                // One caller was stopped, so this pool does not know of the other yet.
                Err(Error::CutPending(_)) if is_gone => return Ok(()),
                Err(Error::CutPending(_)) => {
                    self.ledger.set_fate(snapshot, CutFate::Acknowledged);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.ledger.tally.borrow_mut().deleted += 1;
        Ok(())
    }
}

/// The fate of a cut by the answers that its callers got.
fn fate(answers: &[CallerAnswer]) -> CutFate {
    if answers.iter().any(|answer| matches!(answer, CallerAnswer::Taken)) {
        CutFate::Acknowledged
    } else if answers.iter().all(|answer| matches!(answer, CallerAnswer::Refused)) {
        CutFate::Refused
    } else {
        CutFate::Open
    }
}
