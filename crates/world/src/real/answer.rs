//! A one-shot answer between two parties on one thread.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

enum State<T> {
    Open(Option<Waker>),
    Given(T),
    /// The promise was dropped unkept, or the answer was already taken.
    Gone,
}

/// The side that will give the answer.
pub(super) struct Promise<T>(Rc<RefCell<State<T>>>);

/// Resolves to the promised value. Dropping it abandons the value and nothing else.
pub(super) struct Answer<T>(Rc<RefCell<State<T>>>);

/// A promise and the answer it will give.
pub(super) fn promise<T>() -> (Promise<T>, Answer<T>) {
    let state = Rc::new(RefCell::new(State::Open(None)));
    (Promise(Rc::clone(&state)), Answer(state))
}

impl<T> Promise<T> {
    /// Gives the answer and wakes whoever waits for it.
    pub fn keep(self, value: T) {
        let before = self.0.replace(State::Given(value));
        if let State::Open(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        if let State::Open(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Gone;
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Future for Answer<T> {
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
            State::Given(_) => match std::mem::replace(&mut *state, State::Gone) {
                State::Given(value) => Poll::Ready(value),
                _ => unreachable!("matched as given just above"),
            },
            State::Gone => panic!("an answer is awaited after it was taken, or its engine has ended"),
        }
    }
}
