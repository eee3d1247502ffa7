//! A one-shot channel between two parties on one thread.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

enum State<T> {
    Open(Option<Waker>),
    Sent(T),
    /// The sender was dropped without sending, or the value was already received.
    Closed,
}

pub(super) struct Sender<T>(Rc<RefCell<State<T>>>);

/// Resolves to the sent value. Dropping it discards the value and nothing else.
pub(super) struct Receiver<T>(Rc<RefCell<State<T>>>);

pub(super) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = Rc::new(RefCell::new(State::Open(None)));
    (Sender(Rc::clone(&state)), Receiver(state))
}

impl<T> Sender<T> {
    /// Sends the value and wakes the receiver.
    pub fn send(self, value: T) {
        let before = self.0.replace(State::Sent(value));
        if let State::Open(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// True while a value may still be sent.
    pub fn is_open(&self) -> bool {
        matches!(&*self.0.borrow(), State::Open(_))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        if let State::Open(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Closed;
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.borrow_mut();
        match &mut *state {
            State::Open(waker) => {
                match waker {
                    Some(known) => known.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            State::Sent(_) => match std::mem::replace(&mut *state, State::Closed) {
                State::Sent(value) => Poll::Ready(value),
                _ => unreachable!("matched as sent just above"),
            },
            State::Closed => panic!("a one-shot value was awaited twice, or its sender is gone"),
        }
    }
}
