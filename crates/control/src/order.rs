//! Orders: work that other threads give to a pool's thread.
//!
//! Invariants:
//!
//! 1. Orders of a pool are done one at a time, in the order in which they were given.
//! 2. An order that was taken is done, also if nobody waits for its answer any more.

use crate::pool_thread::ServedPool;
use report::Refusal;
use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};
use thiserror::Error;
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};
use world::{LocalFuture, Moment, World, with_deadline};

/// Most orders that wait for a pool.
pub const ORDERS_MAX: usize = 64;
/// Time for an answer; an order that takes longer goes on without its caller.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Rows after which a listing lets the pool's I/O go first.
pub const ROWS_AT_ONCE: usize = 512;

/// An order on its way.
pub(crate) struct Order {
    name: &'static str,
    work: Box<dyn FnOnce(Rc<ServedPool>) -> LocalFuture<()> + Send>,
}

/// The reason for which an order was not taken. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OrderRefusal {
    /// Too many orders wait; try again.
    #[error("{ORDERS_MAX} orders wait for the pool already; try again")]
    Full,
    /// The pool's thread has ended, or ends.
    #[error("the pool is stopped")]
    Stopped,
}

/// The answer to an order.
#[derive(Debug)]
pub enum OrderAnswer<T> {
    Done(T),
    /// It was not done within [`ANSWER_WITHIN`], and goes on.
    UnderWay(PendingOrder<T>),
}

/// An order that goes on. Dropping it does not end the order.
#[derive(Debug)]
pub struct PendingOrder<T>(oneshot::Receiver<T>);

impl<T> Future for PendingOrder<T> {
    /// [`OrderRefusal::Stopped`] if the pool's thread ended first: whether the order was done is not known.
    type Output = Result<T, OrderRefusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.map_err(|_| OrderRefusal::Stopped))
    }
}

/// Refuses an order that came later than its caller can use: an application may have been frozen for it, and works again.
pub(crate) fn check_time(now: Moment, not_after: Option<Moment>) -> Result<(), Refusal> {
    match not_after.filter(|not_after| now > *not_after) {
        None => Ok(()),
        Some(not_after) => {
            let late_ms = now.since(not_after).as_millis();
            let problem = format!("the order came {late_ms} ms too late, and nothing was done");
            Err(Refusal::new(problem, "ask again, with more time or when the pools are less busy"))
        }
    }
}

/// Gives orders to one pool.
#[derive(Clone)]
pub struct Orders(mpsc::Sender<Order>);

impl Orders {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Order>) {
        let (give, take) = mpsc::channel(ORDERS_MAX);
        (Self(give), take)
    }

    /// Gives an order and waits for its answer. `name` is for the operator.
    ///
    /// # Errors
    ///
    /// The order was not taken, or the pool's thread ended before it answered.
    pub async fn give<T: Send + 'static>(
        &self,
        world: &World,
        name: &'static str,
        work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<T> + Send + 'static,
    ) -> Result<OrderAnswer<T>, OrderRefusal> {
        let mut pending = self.begin(name, work)?;
        match with_deadline(world.sleep(ANSWER_WITHIN), &mut pending).await {
            Some(answer) => answer.map(OrderAnswer::Done),
            None => Ok(OrderAnswer::UnderWay(pending)),
        }
    }

    /// Gives an order when there is room for it, and waits for its answer, however long that takes.
    ///
    /// # Errors
    ///
    /// The pool's thread has ended, before it took the order or before it answered.
    pub async fn give_when_free<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<T> + Send + 'static,
    ) -> Result<T, OrderRefusal> {
        let (order, answer) = order_of(name, work);
        self.0.send(order).await.map_err(|_| OrderRefusal::Stopped)?;
        answer.await
    }

    /// Gives an order, whose answer is awaited or not. `name` is for the operator.
    ///
    /// # Errors
    ///
    /// The order was not taken.
    pub fn begin<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<T> + Send + 'static,
    ) -> Result<PendingOrder<T>, OrderRefusal> {
        let (order, answer) = order_of(name, work);
        self.0.try_send(order).map_err(|refused| match refused {
            TrySendError::Full(_) => OrderRefusal::Full,
            TrySendError::Closed(_) => OrderRefusal::Stopped,
        })?;
        Ok(answer)
    }
}

/// An order, and its answer to come.
fn order_of<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<T> + Send + 'static,
) -> (Order, PendingOrder<T>) {
    let (tell, answer) = oneshot::channel();
    let work = Box::new(move |pool| -> LocalFuture<()> {
        let work = work(pool);
        // The caller may be gone.
        Box::pin(async move { drop(tell.send(work.await)) })
    });
    (Order { name, work }, PendingOrder(answer))
}

/// Does the orders of a pool until nobody can give one any more.
pub(crate) async fn do_orders(pool: Rc<ServedPool>, mut orders: mpsc::Receiver<Order>) {
    while let Some(Order { name, work }) = orders.recv().await {
        pool.begin_order(name);
        work(Rc::clone(&pool)).await;
        pool.end_order();
    }
}

/// Maps rows, and lets the thread's I/O go first after every [`ROWS_AT_ONCE`] of them.
pub async fn map_rows<R, T>(
    world: &World,
    rows: impl IntoIterator<Item = R>,
    map: impl Fn(R) -> T,
) -> Vec<T> {
    let mut mapped = Vec::new();
    for row in rows {
        mapped.push(map(row));
        if mapped.len().is_multiple_of(ROWS_AT_ONCE) {
            world.yield_now().await;
        }
    }
    mapped
}
