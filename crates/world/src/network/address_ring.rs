//! The addresses of one service, of which a client uses the one that serves it: those of two sites.
//!
//! Invariants:
//!
//! 1. An attempt tries each address once, the one that served last first.
//! 2. An address whose session was never opened is not the first one of the next attempt.

use super::{Address, reconnecting::ConnectFailure};
use crate::{IoError, IoErrorKind, World, with_deadline};
use std::{cell::Cell, time::Duration};

/// Addresses that are tried in turn.
#[derive(Debug)]
pub struct AddressRing {
    /// Never empty.
    addresses: Vec<Address>,
    /// Index of the first one of the next attempt.
    next: Cell<usize>,
    /// Index of the one that the last session is with.
    used: Cell<usize>,
}

impl AddressRing {
    pub fn new(first: &Address, others: &[Address]) -> Self {
        let addresses = std::iter::once(first).chain(others).cloned().collect();
        Self { addresses, next: Cell::new(0), used: Cell::new(0) }
    }

    /// Connects to the first address that lets it. Several addresses share `limit`, the time of all of them.
    ///
    /// # Errors
    ///
    /// None does; the reasons of all.
    pub async fn connect<T>(
        &self,
        world: &World,
        limit: Duration,
        attempt: impl AsyncFn(&Address) -> Result<T, ConnectFailure>,
    ) -> Result<T, ConnectFailure> {
        let count = self.addresses.len();
        if count == 1 {
            return attempt(&self.addresses[0]).await;
        }
        let limit = limit / count as u32;
        let (first, mut failures, mut is_retryable) = (self.next.get(), Vec::new(), false);
        for index in (0..count).map(|step| (first + step) % count) {
            let address = &self.addresses[index];
            match with_deadline(world.sleep(limit), attempt(address)).await {
                Some(Ok(session)) => {
                    self.used.set(index);
                    self.next.set((index + 1) % count);
                    return Ok(session);
                }
                Some(Err(failure)) => {
                    is_retryable |= failure.is_retryable;
                    failures.push(failure.error);
                }
                None => {
                    let why = format!("{address}: no answer within {} ms", limit.as_millis());
                    failures.push(IoError::new(IoErrorKind::Disconnected, why));
                }
            }
        }
        let away = failures.iter().find(|error| error.kind() == IoErrorKind::Disconnected);
        let kind = away.unwrap_or(&failures[0]).kind();
        let reasons: Vec<String> = failures.iter().map(IoError::to_string).collect();
        Err(ConnectFailure { error: IoError::new(kind, reasons.join("; ")), is_retryable })
    }

    /// The last session was opened: the next attempt begins with its address.
    pub fn opened(&self) {
        self.next.set(self.used.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimLimits, Simulation};

    #[test]
    fn each_address_is_tried_once_and_the_one_that_served_comes_first() {
        let mut simulation = Simulation::new(1);
        simulation.run(SimLimits::generous(), |world| async move {
            let [one, other] = ["one", "other"].map(|host| Address::parse(host, 1).unwrap());
            let ring = AddressRing::new(&one, std::slice::from_ref(&other));
            let tried = std::cell::RefCell::new(Vec::new());
            let limit = Duration::from_secs(10);
            let connect = async |serves: &str| {
                let attempt = async |address: &Address| {
                    let Address::Tcp { host, .. } = address else { panic!("{address}") };
                    tried.borrow_mut().push(host.clone());
                    match serves {
                        "silence" => std::future::pending().await,
                        serves if serves == host => Ok(()),
                        _ => Err(ConnectFailure {
                            error: IoError::new(IoErrorKind::NotFound, format!("{host}: no such export")),
                            is_retryable: false,
                        }),
                    }
                };
                let begun = world.now();
                let connected = ring.connect(&world, limit, attempt).await;
                (connected.map_err(|failure| failure.error), world.now().since(begun), tried.take())
            };
            let (connected, _, asked) = connect("other").await;
            assert_eq!((connected.is_ok(), asked), (true, vec!["one".to_owned(), "other".to_owned()]));
            ring.opened();
            assert_eq!(connect("other").await.2, ["other"]);
            // It was not opened: the other one is asked first.
            assert_eq!(connect("other").await.2, ["one", "other"]);
            let (refused, ..) = connect("nobody").await;
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), IoErrorKind::NotFound);
            assert!(error.to_string().contains("one: no such export; "), "{error}");
            let (refused, took, asked) = connect("silence").await;
            assert_eq!(
                (refused.unwrap_err().kind(), took, asked.len()),
                (IoErrorKind::Disconnected, limit, 2)
            );
        });
    }
}
