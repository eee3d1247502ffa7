//! Hooks for the simulator: planted bugs, to test that it would find them, and counters of branches, to test
//! that it reaches them.
//!
//! Without the feature `simulation` both compile to nothing: `canary::is` is false and `sometimes::reached`
//! does nothing. With it they are thread-local, so that runs do not affect each other, and two runs of one
//! seed agree.

/// An enum of plain names, and the list of them.
macro_rules! listed {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All variants, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

pub mod canary;
pub mod sometimes;
pub mod thread_delays;
