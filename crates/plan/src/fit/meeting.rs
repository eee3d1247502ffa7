//! Rounding of what was sized for a need.

use crate::units::{Gib, HostIops};

/// Part of a need that rounding may take.
const ROUNDING: f64 = 1e-6;

/// A quantity that was sized for a need.
pub trait Meeting: Sized {
    /// The same; or the need, if it misses that by no more than rounding.
    fn meeting(self, needed: Self) -> Self;
}

macro_rules! meeting {
    ($($kind:ty),*) => {$(
        impl Meeting for $kind {
            fn meeting(self, needed: Self) -> Self {
                let is_rounding = needed.get() - self.get() < needed.get() * ROUNDING;
                if self < needed && is_rounding { needed } else { self }
            }
        }
    )*};
}

meeting!(Gib, HostIops);
