//! Tests of the line to a peer, on the thread of the link.

use super::link_thread::{LINK_PORT, Link};
use array::format::SiteId;
use replication::{
    frame::LINK_TEST_VERSION,
    link::{LinkPeer, LinkTestSize, PathMeasurement, test_link},
};
use report::Refusal;
use std::{cell::Cell, rc::Rc, time::Duration};
use world::Address;

/// Bounds of the time of a test.
pub const LINE_TEST_SPAN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Most connections of a test.
pub const LINE_TEST_CONNECTIONS_MAX: u16 = 16;

/// A test to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineTestOrder {
    /// Time of all measurements together.
    pub span: Duration,
    /// Connections of the measurements with several; `None` for as many as replication uses.
    pub connections: Option<u16>,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineTest {
    pub connections: u16,
    /// Connections of a session to this peer.
    pub replication_connections: u16,
    pub paths: Vec<PathMeasurement>,
}

/// The mark of a test that is under way from this site.
pub(super) struct LineTestMark<'m>(&'m Cell<bool>);

impl<'m> LineTestMark<'m> {
    /// `None` if one is under way.
    pub fn set(mark: &'m Cell<bool>) -> Option<Self> {
        // One that is made and dropped would end the first.
        (!mark.replace(true)).then(|| Self(mark))
    }
}

impl Drop for LineTestMark<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Link {
    /// Tests the line to a peer, while replication goes on.
    pub(super) async fn test_line(&self, site: SiteId, order: LineTestOrder) -> Result<LineTest, Refusal> {
        let name = self.peer_name(site);
        let addresses = self.addresses_of(site);
        if addresses.is_empty() {
            return Err(Refusal::new(
                format!("site {name} connects to this one, and its address is not known here"),
                format!("say 'spindle link test {}' there: it measures both directions", self.name),
            ));
        }
        let session = self.session_with(site)?;
        if session.version() < LINK_TEST_VERSION {
            return Err(Refusal::new(
                format!("site {name} runs {}, which does not know tests of the line", session.program()),
                "update it",
            ));
        }
        let Some(_mark) = LineTestMark::set(&self.is_testing) else {
            return Err(Refusal::new("this site tests a line already", "wait until that test has ended"));
        };
        let all = u16::try_from(addresses.len()).unwrap_or(u16::MAX);
        let replication_connections = self.settings.connections.max(all).min(LINE_TEST_CONNECTIONS_MAX);
        let connections = order.connections.unwrap_or(replication_connections);
        let peer = LinkPeer {
            addresses: addresses.iter().filter_map(|one| Address::parse(one, LINK_PORT).ok()).collect(),
            site: Some(site),
        };
        let size = LinkTestSize { span: order.span, connections };
        let network = Rc::clone(&self.network);
        let paths = test_link(&self.world, network, peer, &self.settings, size).await;
        let paths = paths
            .map_err(|error| Refusal::new(format!("site {name}: {error}"), "try again in a few minutes"))?;
        if paths.iter().all(|path| path.figures.is_err()) {
            let reasons = paths.iter().map(|path| match &path.figures {
                Err(reason) => format!("{}: {reason}", path.address),
                Ok(_) => unreachable!("none was measured"),
            });
            let reasons: Vec<String> = reasons.collect();
            return Err(Refusal::new(
                format!("the line to site {name} was not measured: {}", reasons.join("; ")),
                "see 'spindle dr status'",
            ));
        }
        Ok(LineTest { connections, replication_connections, paths })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_test_is_under_way_at_a_time_also_after_one_that_was_dropped() {
        let mark = Cell::new(false);
        let first = LineTestMark::set(&mark);
        assert!(first.is_some() && LineTestMark::set(&mark).is_none());
        assert!(mark.get(), "a refused one does not end the first");
        drop(first);
        assert!(LineTestMark::set(&mark).is_some());
    }
}
