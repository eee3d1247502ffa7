//! Fair queue in front of the log: bytes are shared fairly among volumes, however many commands each has
//! waiting.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng 1996). The start tag of a command is the finish tag of its
//! volume's previous command or the current virtual time, whichever is later; its finish tag is its start tag
//! plus its bytes. The command with the lowest start tag is admitted first. Stamps are taken by admitted
//! commands only, so the queue decides the order of the log.
//!
//! Invariants:
//!
//! 1. No command waits while there is room. The admitted bytes do not exceed `room`, unless one command alone
//!    does.
//! 2. Virtual time never goes back. No command is admitted before a waiting one with a lower tag.

use crate::format::VolumeNumber;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};
use tokio::sync::{Notify, oneshot};

/// The fair queue of one pool's log.
#[derive(Debug)]
pub(crate) struct FairQueue {
    /// Bytes that may be admitted at once.
    room: u64,
    state: RefCell<State>,
    left: Notify,
    /// A command waits for another one to leave.
    is_leave_awaited: Cell<bool>,
}

#[derive(Debug, Default)]
struct State {
    inside: u64,
    virtual_time: u64,
    /// The finish tag of each volume's last command, if it is ahead of virtual time.
    finish: BTreeMap<VolumeNumber, u64>,
    /// Bytes and waiter of each command, by start tag and order of arrival.
    waiting: BTreeMap<(u64, u64), (u64, oneshot::Sender<()>)>,
    arrivals: u64,
}

/// Admission of one command; the next one may enter when this is dropped.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    queue: Rc<FairQueue>,
    bytes: u64,
}

impl FairQueue {
    /// A queue that admits `room` bytes at once.
    pub fn new(room: u64) -> Rc<Self> {
        Rc::new(Self {
            room,
            state: RefCell::default(),
            left: Notify::new(),
            is_leave_awaited: Cell::new(false),
        })
    }

    /// Admitted bytes.
    pub fn inside(&self) -> u64 {
        self.state.borrow().inside
    }

    /// Waits until an admitted command leaves; returns at once if there is none.
    pub async fn leave(&self) {
        if self.inside() > 0 {
            self.is_leave_awaited.set(true);
            self.left.notified().await;
        }
    }

    /// Waits for the turn of a command of `bytes` bytes.
    pub async fn enter(self: &Rc<Self>, volume: VolumeNumber, bytes: u64) -> QueueTicket {
        let turn = {
            let mut state = self.state.borrow_mut();
            let start = state.tag(volume, bytes);
            if state.waiting.is_empty() && state.has_room(bytes, self.room) {
                state.let_in(start, bytes);
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                let key = (start, state.arrivals);
                state.waiting.insert(key, (bytes, sender));
                Some(receiver)
            }
        };
        let pass = |queue: &Rc<Self>| QueueTicket { queue: Rc::clone(queue), bytes };
        match turn {
            None => pass(self),
            Some(turn) => {
                turn.await.expect("the queue is there as long as somebody waits");
                pass(self)
            }
        }
    }
}

impl State {
    fn tag(&mut self, volume: VolumeNumber, bytes: u64) -> u64 {
        self.arrivals += 1;
        let now = self.virtual_time;
        self.finish.retain(|_, &mut finish| finish > now);
        let start = self.finish.get(&volume).copied().unwrap_or(now);
        assert!(start >= now, "tags lie ahead");
        self.finish.insert(volume, start + bytes);
        start
    }

    fn has_room(&self, bytes: u64, room: u64) -> bool {
        self.inside == 0 || self.inside + bytes <= room
    }

    fn let_in(&mut self, start: u64, bytes: u64) {
        self.virtual_time = self.virtual_time.max(start);
        self.inside += bytes;
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        if self.queue.is_leave_awaited.take() {
            self.queue.left.notify_waiters();
        }
        let mut state = self.queue.state.borrow_mut();
        state.inside = state.inside.checked_sub(self.bytes).expect("who leaves was let in");
        while let Some(next) = state.waiting.first_entry() {
            let (key, bytes) = (*next.key(), next.get().0);
            if !state.has_room(bytes, self.queue.room) {
                return;
            }
            let (_, (bytes, turn)) = state.waiting.pop_first().expect("looked at");
            // A waiter that was dropped takes no room.
            if turn.send(()).is_ok() {
                state.let_in(key.0, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
    };

    /// Polls once.
    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn a_volume_with_one_command_does_not_wait_for_all_commands_of_another() {
        let queue = FairQueue::new(100);
        let (busy, calm) = (VolumeNumber(1), VolumeNumber(2));
        let mut first = pin!(queue.enter(busy, 100));
        let pass = poll(first.as_mut()).expect("there is room");
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(queue.enter(busy, 100))).collect();
        assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut()).is_none()));
        let mut calm = pin!(queue.enter(calm, 100));
        assert!(poll(calm.as_mut()).is_none());
        drop(pass);
        let pass = poll(calm.as_mut()).expect("its turn, for it had none yet");
        assert!(poll(waiting[0].as_mut()).is_none());
        drop(pass);
        assert!(poll(waiting[0].as_mut()).is_some());
    }

    #[test]
    fn a_command_larger_than_the_room_enters_alone_and_a_dropped_one_takes_none() {
        let queue = FairQueue::new(100);
        let mut small = Box::pin(queue.enter(VolumeNumber(1), 10));
        let pass = poll(small.as_mut()).expect("there is room");
        let mut large = Box::pin(queue.enter(VolumeNumber(1), 1000));
        assert!(poll(large.as_mut()).is_none());
        let mut gone = Box::pin(queue.enter(VolumeNumber(2), 100));
        assert!(poll(gone.as_mut()).is_none());
        drop(gone);
        drop(pass);
        let pass = poll(large.as_mut()).expect("nobody else is there");
        drop(pass);
        assert_eq!(queue.state.borrow().inside, 0);
    }
}
