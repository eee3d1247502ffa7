//! Planted bugs of the link, each at the very place where a programmer might make the mistake.

/// A bug that a test plants, to see that it is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkCanary {
    /// A frame that comes again over another connection is delivered again.
    DeliveredTwice,
    /// Frames are delivered as they come.
    OutOfOrder,
    /// Frames that a lost connection had taken are forgotten.
    NotSentAgain,
    /// The sender does not wait for the window.
    WindowIgnored,
    /// Channels are served in the order of their numbers.
    FirstChannelFirst,
}

#[cfg(debug_assertions)]
mod planted {
    use super::LinkCanary;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<LinkCanary>> = const { Cell::new(None) };
    }

    /// Removes the bug when dropped.
    #[derive(Debug)]
    pub struct PlantedCanary(());

    /// Plants a bug in all sessions of this thread.
    #[doc(hidden)]
    pub fn plant(canary: LinkCanary) -> PlantedCanary {
        let before = PLANTED.replace(Some(canary));
        assert_eq!(before, None, "one bug at a time");
        PlantedCanary(())
    }

    impl Drop for PlantedCanary {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }

    pub(crate) fn is(canary: LinkCanary) -> bool {
        PLANTED.get() == Some(canary)
    }
}

#[cfg(debug_assertions)]
pub(crate) use planted::is;
#[cfg(debug_assertions)]
pub use planted::{PlantedCanary, plant};

/// Always false in a program that is shipped.
#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: LinkCanary) -> bool {
    false
}
