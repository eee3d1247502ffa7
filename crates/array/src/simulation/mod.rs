//! What only the simulator asks for: bugs it plants, to see whether it would catch them; and branches it counts, to see
//! whether it ever takes them.
//!
//! Both are off in a program that is built without the feature `simulation`: then `canary::is` is false and
//! `sometimes::reached` nothing, whatever anybody does. With it they belong to the thread, so that one run does not
//! see another, and two runs of a seed agree.

/// An enum of plain names, and the list of them.
macro_rules! listed {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

pub mod canary;
pub mod sometimes;
