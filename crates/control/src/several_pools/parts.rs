//! The parts that several pools take in one snapshot or operation, an order for each.

use super::{GATHER_MAX, HeldPlaces};
use crate::{
    order::{OrderRefusal, PendingOrder},
    pool_thread::ServedPool,
    site::handle::PoolHandle,
};
use array::{format::PoolId, pool::CutMember};
use report::Refusal;
use serving::pool::group_change::PartRefusal;
use std::{rc::Rc, time::Duration};
use tokio::sync::oneshot;
use world::{LocalFuture, with_deadline};

/// More than the other pools need to take their orders.
const START_MAX: Duration = GATHER_MAX.saturating_mul(2);

/// The reason for which a work over several pools was not done.
#[derive(Clone, Debug)]
pub enum PartsRefusal {
    /// A pool did not take its order. Nothing was done.
    NotTaken { pool: String, refusal: OrderRefusal },
    /// A pool is busy with another order. Nothing was done.
    Busy { pool: String },
    /// A pool refused; unless it says so, nothing was done.
    Refused(Refusal),
}

/// A part that waits for those of the other pools.
struct WaitingPart<T> {
    pool: String,
    taken: oneshot::Receiver<()>,
    start: oneshot::Sender<CutMember>,
    done: PendingOrder<Option<Result<T, PartRefusal>>>,
}

/// Has pools take part in something at the same time. Returns their answers, in the order given. `late` is a sleep of
/// [`GATHER_MAX`].
///
/// # Errors
///
/// The first refusal of a pool; rather of one that has a reason of its own, which is the cause of the others.
pub async fn with_all_pools<T: Send + 'static>(
    pools: &[PoolHandle],
    name: &'static str,
    (places, late): (&HeldPlaces, impl Future<Output = ()>),
    take_part: impl Fn(Rc<ServedPool>, CutMember) -> LocalFuture<Result<T, PartRefusal>> + Clone + Send + 'static,
) -> Result<Vec<T>, PartsRefusal> {
    let ids: Vec<PoolId> = pools.iter().map(|pool| pool.id).collect();
    let members = CutMember::of_pools(&ids)
        .map_err(|error| PartsRefusal::Refused(Refusal::new(error.to_string(), "name each pool once")))?;
    let mut waiting = Vec::new();
    for pool in pools {
        waiting.push(begin(pool, name, places.clone(), take_part.clone())?);
    }
    let mut late = std::pin::pin!(late);
    for WaitingPart { pool, taken, .. } in &mut waiting {
        let pool = pool.clone();
        match with_deadline(late.as_mut(), taken).await {
            Some(Ok(())) => {}
            Some(Err(_)) => return Err(PartsRefusal::NotTaken { pool, refusal: OrderRefusal::Stopped }),
            None => return Err(PartsRefusal::Busy { pool }),
        }
    }
    let mut begun = Vec::new();
    for (WaitingPart { pool, start, done, .. }, member) in waiting.into_iter().zip(members) {
        // A thread that has ended meanwhile drops the part, which the others notice.
        let _ = start.send(member);
        begun.push((pool, done));
    }
    let (mut answers, mut refusals) = (Vec::new(), Vec::new());
    for (pool, done) in begun {
        match done.await {
            Ok(Some(Ok(answer))) => answers.push(answer),
            Ok(Some(Err(refused))) => {
                refusals.push((refused.is_effect, PartsRefusal::Refused(refused.refusal)))
            }
            Ok(None) => refusals.push((false, PartsRefusal::Busy { pool })),
            Err(refusal) => refusals.push((false, PartsRefusal::NotTaken { pool, refusal })),
        }
    }
    let cause = refusals.iter().position(|(is_effect, _)| !is_effect).unwrap_or_default();
    match refusals.into_iter().nth(cause) {
        Some((_, refusal)) => Err(refusal),
        None => Ok(answers),
    }
}

/// Gives a pool its order, which waits for its part.
fn begin<T: Send + 'static>(
    pool: &PoolHandle,
    name: &'static str,
    places: HeldPlaces,
    take_part: impl Fn(Rc<ServedPool>, CutMember) -> LocalFuture<Result<T, PartRefusal>> + Send + 'static,
) -> Result<WaitingPart<T>, PartsRefusal> {
    let (tell, taken) = oneshot::channel();
    let (start, started) = oneshot::channel();
    let work = move |served: Rc<ServedPool>| -> LocalFuture<_> {
        Box::pin(async move {
            // The one who asked may have given up.
            let _ = tell.send(());
            let part = match with_deadline(served.world.sleep(START_MAX), started).await {
                Some(Ok(part)) => part,
                _ => return None,
            };
            let done = take_part(Rc::clone(&served), part).await;
            served.show_changes();
            drop(places);
            Some(done)
        })
    };
    let done = pool.begin(name, work);
    let done = done.map_err(|refusal| PartsRefusal::NotTaken { pool: pool.name.clone(), refusal })?;
    Ok(WaitingPart { pool: pool.name.clone(), taken, start, done })
}

impl PartsRefusal {
    /// True if no pool had begun: there is nothing to settle.
    pub fn is_before_begin(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::NotTaken { refusal: OrderRefusal::Full, .. })
    }

    /// For the log.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::NotTaken { pool, refusal } => {
                Refusal::new(format!("pool {pool}: {refusal}"), "see its messages")
            }
            Self::Busy { pool } => Refusal::new(
                format!("pool {pool} is busy with another order, and nothing was changed in any pool"),
                "try again",
            ),
            Self::Refused(refusal) => refusal.clone(),
        }
    }
}
