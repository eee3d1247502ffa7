//! A bounded log of events with readers that follow it at their own speed.
//!
//! Invariants:
//!
//! 1. Recording never waits, whether or not anyone reads.
//! 2. A reader gets every event in order, or the number of those it missed because it fell behind.

use crate::{WallTime, World};
use std::{cell::RefCell, collections::VecDeque, fmt, rc::Rc};
use tokio::sync::Notify;

/// A log that keeps its latest events. Clones share it.
pub struct EventLog<E>(Rc<Log<E>>);

struct Log<E> {
    world: World,
    kept_max: usize,
    state: RefCell<State<E>>,
    recorded: Notify,
}

struct State<E> {
    /// Number of the first event that is kept.
    first: u64,
    kept: VecDeque<Rc<RecordedEvent<E>>>,
    is_closed: bool,
}

/// An event with its time of recording.
#[derive(Debug)]
pub struct RecordedEvent<E> {
    /// Counted from 0.
    pub number: u64,
    pub time: WallTime,
    pub event: E,
}

/// An item that a reader gets.
#[derive(Debug)]
pub enum FollowedEvent<E> {
    Event(Rc<RecordedEvent<E>>),
    /// Events were overwritten before they were read.
    Overflow {
        /// Number of events missed.
        events: u64,
        /// The event that follows them.
        resumes: Rc<RecordedEvent<E>>,
    },
}

impl<E> Clone for EventLog<E> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<E> fmt::Debug for EventLog<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventLog({} kept)", self.0.state.borrow().kept.len())
    }
}

impl<E: 'static> EventLog<E> {
    /// An empty log that keeps `kept_max` events.
    ///
    /// # Panics
    ///
    /// If `kept_max` is 0.
    pub fn new(world: &World, kept_max: usize) -> Self {
        assert!(kept_max > 0, "a log keeps its last event at least");
        let state = RefCell::new(State { first: 0, kept: VecDeque::new(), is_closed: false });
        Self(Rc::new(Log { world: world.clone(), kept_max, state, recorded: Notify::new() }))
    }

    pub fn record(&self, event: E) {
        let mut state = self.0.state.borrow_mut();
        let number = state.first + state.kept.len() as u64;
        state.kept.push_back(Rc::new(RecordedEvent { number, time: self.0.world.wall(), event }));
        if state.kept.len() > self.0.kept_max {
            state.kept.pop_front();
            state.first += 1;
        }
        drop(state);
        self.0.recorded.notify_waiters();
    }

    /// Ends the log: readers get the events that are kept, then `None`.
    pub fn close(&self) {
        self.0.state.borrow_mut().is_closed = true;
        self.0.recorded.notify_waiters();
    }

    /// The log as a callback.
    pub fn sink(&self) -> Rc<dyn Fn(E)> {
        let log = self.clone();
        Rc::new(move |event| log.record(event))
    }

    /// A reader of all events that are kept, and of those to come.
    pub fn follow(&self) -> EventReader<E> {
        EventReader { log: self.clone(), next: 0 }
    }
}

/// A reader's place in an [`EventLog`].
pub struct EventReader<E> {
    log: EventLog<E>,
    next: u64,
}

impl<E: 'static> EventReader<E> {
    /// The next item, if there is one now.
    pub fn try_next(&mut self) -> Option<FollowedEvent<E>> {
        let state = self.log.0.state.borrow();
        if self.next < state.first {
            let missed = state.first - self.next;
            self.next = state.first;
            let resumes = Rc::clone(state.kept.front().expect("a log that dropped events keeps its latest"));
            return Some(FollowedEvent::Overflow { events: missed, resumes });
        }
        let event = state.kept.get((self.next - state.first) as usize)?;
        self.next += 1;
        Some(FollowedEvent::Event(Rc::clone(event)))
    }

    /// Waits for the next item; `None` once the log is closed and all of its events were read.
    pub async fn next(&mut self) -> Option<FollowedEvent<E>> {
        loop {
            let log = Rc::clone(&self.log.0);
            // Created before the check, so that a notification after it is not missed.
            let recorded = log.recorded.notified();
            if let Some(next) = self.try_next() {
                return Some(next);
            }
            if log.state.borrow().is_closed {
                return None;
            }
            recorded.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimLimits, Simulation};
    use std::time::Duration;

    #[test]
    fn a_reader_gets_every_event_or_the_number_it_missed() {
        let run = Simulation::new(1).run(SimLimits::generous(), |world| async move {
            let log = EventLog::new(&world, 4);
            let mut reader = log.follow();
            let sink = log.sink();
            (0..3).for_each(|number| sink(number));
            let mut seen = Vec::new();
            let take = |reader: &mut EventReader<u64>, seen: &mut Vec<String>| {
                while let Some(next) = reader.try_next() {
                    seen.push(match next {
                        FollowedEvent::Event(recorded) => {
                            assert_eq!(recorded.number, recorded.event);
                            recorded.event.to_string()
                        }
                        FollowedEvent::Overflow { events, resumes } => {
                            format!("{events} missed before {}", resumes.number)
                        }
                    });
                }
            };
            take(&mut reader, &mut seen);
            (3..10).for_each(|number| sink(number));
            take(&mut reader, &mut seen);
            assert_eq!(seen, ["0", "1", "2", "3 missed before 6", "6", "7", "8", "9"]);
            // A reader that waits is woken.
            let clock = world.clone();
            world.spawn("recorder", async move {
                clock.sleep(Duration::from_secs(1)).await;
                sink(10);
            });
            assert!(
                matches!(reader.next().await, Some(FollowedEvent::Event(recorded)) if recorded.event == 10)
            );
            log.close();
            assert!(reader.next().await.is_none(), "a closed log ends its readers");
        });
        run.completed();
    }
}
